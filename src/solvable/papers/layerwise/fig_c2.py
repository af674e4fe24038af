"""Fig. C.2: the modes of a small parity network emerge one after the other, and the corrected equations for it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy.integrate import solve_ivp

from solvable.models.parity_mode import BITS, PARITY, ParityMode, network, velocity
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._layer_reference import on_flow_time
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis
from solvable.precision import in_float64
from solvable.training import GradientDescent

TARGET, START = 5.0, 0.01
NAMES = ("α", "β", "γ")


def reproduce(scale: Scale) -> Reproduction:
    model = ParityMode(TARGET, START, START, START)
    # One integration serves the curves, the claims and the end.
    flow = model.predict(np.append(np.linspace(0, 14, 561), 600.0))
    theory, sparse = flow.isel(time=slice(0, -1)), np.linspace(0.5, 14, 28)
    rate = 0.002 if scale == "quick" else 0.0002
    simulation = model.simulate(np.round(sparse / rate), GradientDescent(rate), samples=4000, seeds=10, key=1)
    points = on_flow_time(simulation)
    figure, (strength_panel, offset_panel) = new_figure(2)
    for mode, name in enumerate(NAMES):
        draw_curve(strength_panel, theory.strength[:, mode], COLOURS[mode], f"mode {name}")
        draw_curve(strength_panel, points.strength[:, :, mode], COLOURS[mode])
    draw_curve(strength_panel, theory.total_strength, COLOURS[6], "all modes")
    draw_curve(strength_panel, points.total_strength, COLOURS[6])
    single = multilinear(theory.time.values)
    strength_panel.plot(theory.time, single, color=COLOURS[6], linestyle="--", label="multilinear, B² = 1/3")
    strength_panel.set_ylabel("share of the parity, R")
    strength_panel.set_title("lines: flow, points: descent on 4000 inputs")
    strength_panel.legend(fontsize="small", loc=(0.56, 0.51))
    for mode, name in enumerate(NAMES):
        draw_curve(offset_panel, theory.weight[:, mode] ** 2 / TARGET, COLOURS[mode], f"{name}² / S")
    draw_curve(offset_panel, theory.offset / TARGET, COLOURS[4], "c / S")
    offset_panel.axhline(1, color=COLOURS[4], linestyle=":", label="c / S as the text has it")
    offset_panel.set_ylabel("parameters over the target")
    offset_panel.legend(fontsize="small", loc=(0.58, 0.33))
    for panel in (strength_panel, offset_panel):
        set_axis(panel, "x", theory.time)
    datasets = {"theory": theory, "simulation": simulation}
    return Reproduction(datasets, figure, _claims(model, flow, sparse, rate))


def multilinear(times: np.ndarray) -> np.ndarray:
    """One sigmoid with the thesis's B² = 1/3, from the same total strength at the start."""
    start = START**2 / (2 * TARGET)
    return 1 / (1 + (1 / start - 1) * np.exp(-2 * TARGET / 3 * times))


def printed_velocity(squares: np.ndarray, offset: float) -> np.ndarray:
    """Eqs. C.15 to C.18 as printed, as rates of logarithms; their factors are those of the mean without the half."""
    a, b, g = squares
    return np.array(
        [
            2 * (-TARGET - (-2 * a + 2 * b + offset)),
            -(TARGET - (-2 * a + 5 * b + 5 * offset)),
            -(TARGET - (g + offset)),
            -(2 * a - 5 * b - g - 8 * offset),
        ]
    )


def extrapolated_descent(model: ParityMode, times: np.ndarray, rate: float) -> np.ndarray:
    """Strengths under descent as its learning rate goes to 0: twice a run at half the rate, less the run."""
    whole, half = (
        model.simulate(np.round(times / each), GradientDescent(each), seeds=1).strength.values[0]
        for each in (rate, rate / 2)
    )
    return 2 * half - whole


@in_float64
def integrate(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Half times of the modes, and the offset at the given times, by DOP853 on gradients of the network itself."""
    gradient = jax.jit(jax.grad(_sum_of_halves))

    def rates(_: float, values: np.ndarray) -> np.ndarray:
        return -np.asarray(gradient(jnp.asarray(values))) / 8

    halves = [partial(_half_reached, mode) for mode in range(3)]
    start = [START, START, START, 0.0]
    solution = solve_ivp(rates, (0, times[-1]), start, "DOP853", times, events=halves, rtol=1e-10, atol=1e-12)
    return np.array([crossings[0] for crossings in solution.t_events]), solution.y[3]


def _half_reached(mode: int, _: float, values: np.ndarray) -> float:
    return values[mode] ** 2 - TARGET


def _sum_of_halves(values: jax.Array) -> jax.Array:
    output = network(values, jnp.asarray(BITS)).sum(-1) + values[3]
    return ((output - TARGET * PARITY) ** 2).sum() / 2


def _claims(model: ParityMode, flow: xr.Dataset, times: np.ndarray, rate: float) -> list[Claim]:
    half = model.emergence_time(0.5).emergence_time.values
    expected_half, offsets = integrate(np.array([3.0, 8.0]))
    at_three = float(flow.offset.sel(time=3.0, method="nearest"))
    end = flow.isel(time=[-1])
    exact = flow.strength.sel(time=times, method="nearest").values
    descent = np.abs(extrapolated_descent(model, times, rate) - exact)
    ninety = float(flow.time[int(np.argmax(flow.total_strength.values >= 0.9))])
    sigmoid_ninety = float(np.log(9 * (2 * TARGET / START**2 - 1)) / (2 * TARGET / 3))
    by_integration = "an eighth-order integrator on gradients of the network, relative tolerance 1e-10"
    return [
        *_gradient_claims(),
        Claim(
            "flow against descent on the network, learning rate extrapolated to 0 (largest difference of a strength)",
            float(descent.max()),
            0.0,
            1e-4,
            "the extrapolation leaves second order in the rate: a few percent of the 2e-3 that it removes",
        ),
        *(
            Claim(f"half time of mode {name}", float(half[mode]), float(expected_half[mode]), 1e-7, by_integration)
            for mode, name in enumerate(NAMES)
        ),
        Claim(
            "half time of γ over that of α",
            float(half[2] / half[0]),
            float(expected_half[2] / expected_half[0]),
            1e-7,
            by_integration,
            printed=2.0,
        ),
        Claim("c at time 3", at_three, float(offsets[0]), 1e-7, by_integration, printed=TARGET),
        Claim("c at the end", float(end.offset[0]), -TARGET, 1e-6, "the exact solution", printed=TARGET),
        Claim(
            "strength of the modes at the end (largest error against 1/2, 1/4, 1/4)",
            float(np.max(np.abs(end.strength.values[0] - [0.5, 0.25, 0.25]))),
            0.0,
            1e-6,
            "the exact solution",
        ),
        Claim(
            "the network is later than one sigmoid with B² = 1/3 to reach 90 % (1 if so)",
            float(ninety > sigmoid_ninety),
            1.0,
            0.0,
            f"90 % at {ninety:.2f} and {sigmoid_ninety:.2f}: the slow modes make a tail",
        ),
    ]


@in_float64
def _gradient_claims() -> list[Claim]:
    """Corrected and printed right-hand sides against automatic differentiation of the network, at random weights."""
    generator = np.random.default_rng(0)
    gradient = jax.jit(jax.grad(_sum_of_halves))
    corrected, printed = [], []
    for _ in range(50):
        values = np.append(generator.uniform(0.05, 3, 3), generator.normal())
        slope = np.asarray(gradient(jnp.asarray(values)))
        rates = np.append(-2 * slope[:3] / values[:3], -slope[3])
        squares = values[:3] ** 2
        corrected.append(np.abs(np.asarray(velocity(jnp.asarray(squares), jnp.asarray(values[3]), TARGET)) - rates))
        printed.append(np.abs(printed_velocity(squares, values[3]) - rates / 4))
    largest = np.max(corrected, axis=0), np.max(printed, axis=0)
    return [
        Claim(
            f"eq. {equation} against the gradient (largest difference in 50 draws)",
            float(right),
            0.0,
            1e-11,
            "automatic differentiation of the network",
            printed=float(wrong),
        )
        for equation, right, wrong in zip(("C.15", "C.16", "C.17", "C.18"), *largest, strict=True)
    ]
