"""Fig. C.2: the modes of a small parity network emerge one after the other, and the corrected equations for it."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy.integrate import solve_ivp

from solvable.models.parity_mode import BITS, PARITY, ParityMode, network
from solvable.models.parity_mode_flow import velocity
from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._layer_reference import on_flow_time
from solvable.papers.layerwise._variables import variable
from solvable.plotting import COLOURS, draw_curve, new_figure, set_axis
from solvable.precision import in_float64
from solvable.training import GradientDescent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TARGET, START = 5.0, 0.01
NAMES = ("α", "β", "γ")
EQUATIONS = ("C.15", "C.16", "C.17", "C.18")
INTEGRATOR = "an eighth-order integrator on gradients of the network, relative tolerance 1e-10"


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The flow, runs of gradient descent, half times by two routes, and the equations against gradients."""
    model = ParityMode(TARGET, START, START, START)
    # One integration serves the curves and the end.
    flow = model.predict(np.append(np.linspace(0, 14, 561), 600.0))
    times = np.linspace(0.5, 14, 28)
    rate = 0.002 if scale == "quick" else 0.0002
    small_steps = variable(("time", "mode"), extrapolated_descent(model, times, rate), "strength at a vanishing rate")
    return {
        "theory": flow.isel(time=slice(0, -1)),
        "end": flow.isel(time=[-1]),
        "simulation": model.simulate(np.round(times / rate), GradientDescent(rate), samples=4000, seeds=10, key=1),
        "descent": xr.Dataset({"strength": small_steps}, {"time": times}),
        "half-times": model.emergence_time(0.5),
        # All modes are half learned before time 8.
        "integrated": integrate(np.array([3.0, 8.0])),
        "equations": _equations(),
    }


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
    """Strengths under gradient descent as its learning rate goes to 0: twice a run at half the rate, less the run."""
    whole, half = (
        model.simulate(np.round(times / each), GradientDescent(each), seeds=1).strength.values[0]
        for each in (rate, rate / 2)
    )
    return 2 * half - whole


@in_float64
def integrate(times: np.ndarray) -> xr.Dataset:
    """Half times of the modes, and the offset at the given times, by DOP853 on gradients of the network itself."""
    gradient = jax.jit(jax.grad(_sum_of_halves))

    def rates(_: float, values: np.ndarray) -> np.ndarray:
        return -np.asarray(gradient(jnp.asarray(values))) / 8

    halves = [partial(_half_reached, mode) for mode in range(3)]
    start = [START, START, START, 0.0]
    solution = solve_ivp(rates, (0, times[-1]), start, "DOP853", times, events=halves, rtol=1e-10, atol=1e-12)
    half_times = [crossings[0] for crossings in solution.t_events]
    return xr.Dataset(
        {
            "half_time": variable("mode", half_times, "half time by integration", units="flow time"),
            "offset": variable("time", solution.y[3], "offset by integration", "c"),
        },
        {"time": times},
    )


def _half_reached(mode: int, _: float, values: np.ndarray) -> float:
    return values[mode] ** 2 - TARGET


def _sum_of_halves(values: jax.Array) -> jax.Array:
    output = network(values, jnp.asarray(BITS)).sum(-1) + values[3]
    return ((output - TARGET * PARITY) ** 2).sum() / 2


@in_float64
def _equations() -> xr.Dataset:
    """Corrected and printed right-hand sides less automatic derivatives of the network, at random weights."""
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
    dims = ("draw", "equation")
    return xr.Dataset(
        {
            "corrected": variable(dims, corrected, "difference of the corrected equation from the gradient"),
            "printed": variable(dims, printed, "difference of the printed equation from the gradient"),
        },
        {"equation": list(EQUATIONS)},
    )


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The corrected equations against the network: its gradients, its flow and gradient descent."""
    theory, descent = data["theory"], data["descent"]
    exact = theory.strength.sel(time=descent.time, method="nearest").values
    ninety = float(theory.time[int(np.argmax(theory.total_strength.values >= 0.9))])
    sigmoid_ninety = float(np.log(9 * (2 * TARGET / START**2 - 1)) / (2 * TARGET / 3))
    return [
        *_equation_claims(data["equations"].max("draw")),
        Claim(
            "flow against descent on the network, learning rate extrapolated to 0 (largest difference of a strength)",
            float(np.abs(descent.strength.values - exact).max()),
            0.0,
            1e-4,
            "the extrapolation leaves second order in the rate: a few percent of the 2e-3 that it removes",
        ),
        *_flow_claims(theory, data["half-times"], data["integrated"]),
        *_end_claims(data["end"].isel(time=0)),
        Claim(
            "the network is later than one sigmoid with B² = 1/3 to reach 90 % (1 if so)",
            float(ninety > sigmoid_ninety),
            1.0,
            0.0,
            f"90 % at {ninety:.2f} and {sigmoid_ninety:.2f}: the slow modes make a tail",
        ),
    ]


def _equation_claims(largest: xr.Dataset) -> list[Claim]:
    return [
        Claim(
            f"eq. {equation} against the gradient (largest difference in 50 draws)",
            float(largest.corrected.sel(equation=equation)),
            0.0,
            1e-11,
            "automatic differentiation of the network",
            printed=float(largest.printed.sel(equation=equation)),
        )
        for equation in EQUATIONS
    ]


def _flow_claims(theory: xr.Dataset, half_times: xr.Dataset, integrated: xr.Dataset) -> list[Claim]:
    found, expected = half_times.emergence_time.values, integrated.half_time.values
    offset, expected_offset = (float(flow.offset.sel(time=3.0, method="nearest")) for flow in (theory, integrated))
    return [
        *(
            Claim(f"half time of mode {name}", found[mode], expected[mode], 1e-7, INTEGRATOR)
            for mode, name in enumerate(NAMES)
        ),
        Claim(
            "half time of γ over that of α",
            found[2] / found[0],
            expected[2] / expected[0],
            1e-7,
            INTEGRATOR,
            printed=2.0,
        ),
        Claim("c at time 3", offset, expected_offset, 1e-7, INTEGRATOR, printed=TARGET),
    ]


def _end_claims(end: xr.Dataset) -> list[Claim]:
    return [
        Claim("c at the end", float(end.offset), -TARGET, 1e-6, "the exact solution", printed=TARGET),
        Claim(
            "strength of the modes at the end (largest error against 1/2, 1/4, 1/4)",
            float(np.max(np.abs(end.strength.values - [0.5, 0.25, 0.25]))),
            0.0,
            1e-6,
            "the exact solution",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Strengths of the modes, and the parameters, over time."""
    theory, points = data["theory"], on_flow_time(data["simulation"])
    figure, (strength_panel, offset_panel) = new_figure(2)
    for mode, name in enumerate(NAMES):
        draw_curve(strength_panel, theory.strength[:, mode], COLOURS[mode], f"mode {name}")
        draw_curve(strength_panel, points.strength[:, :, mode], COLOURS[mode])
        draw_curve(offset_panel, theory.weight[:, mode] ** 2 / TARGET, COLOURS[mode], f"{name}² / S")
    draw_curve(strength_panel, theory.total_strength, COLOURS[6], "all modes")
    draw_curve(strength_panel, points.total_strength, COLOURS[6])
    single = multilinear(theory.time.values)
    strength_panel.plot(theory.time, single, color=COLOURS[6], linestyle="--", label="multilinear, B² = 1/3")
    strength_panel.set_ylabel("learned fraction of the parity, R")
    strength_panel.set_title("lines: flow, points: gradient descent on 4000 inputs", fontsize="medium")
    strength_panel.legend(fontsize="small", loc=(0.56, 0.51))
    draw_curve(offset_panel, theory.offset / TARGET, COLOURS[4], "c / S")
    offset_panel.axhline(1, color=COLOURS[4], linestyle=":", label="c / S according to the text")
    offset_panel.set_ylabel("parameters over the target")
    offset_panel.legend(fontsize="small", loc=(0.58, 0.33))
    for panel in (strength_panel, offset_panel):
        set_axis(panel, "x", theory.time)
    return figure
