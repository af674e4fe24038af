"""Presets for the figures of layerwise: linear features, skills and small networks."""

from collections.abc import Mapping
from typing import Any

from solvable.explorer.presets.preset import Preset, changed


def presets() -> list[Preset]:
    def make(
        figure: str, label: str, model: str, a: Mapping[str, str], b: Mapping[str, str] | None = None, **more: Any
    ) -> Preset:
        return Preset("layerwise", figure, label, model, a, b, **more)

    # ρ_k = k^∓8 of ten modes.
    falling = ",".join(repr(float(k) ** -8) for k in range(1, 11))
    rising = ",".join(repr(float(k) ** 8) for k in range(1, 11))
    four_points = {"target": "0.7,0.5,0.3,0,0,0,0,0,0,0", "samples": "4", "noise": "0", "times": "1e-8:1e8:61log"}
    pure_noise = {"noise": "1", "samples": "50", "times": "0.1:1000:41log"}
    head = ",".join(["1"] * 5 + ["0.02"] * 95)
    benign = {"intensities": head, "samples": "20", "noise": "0.3", "times": "0.05:2000:41log", "seeds": "40"}
    in_head = ",".join(["0.707"] + ["0"] * 99)
    in_tail = ",".join(["0"] * 9 + ["0.707"] + ["0"] * 90)
    three = {
        "variances": "1,0.4,0.16",
        "target_scales": "1,1,1",
        "initial_first": "0.01,0.01,0.01",
        "initial_second": "0.01,0.01,0.01",
        "times": "0:60:61",
    }
    skill = [k**-1.6 for k in range(1, 6)]
    frequencies = ",".join(f"{one / sum(skill):.6g}" for one in skill)
    five = {
        "variances": frequencies,
        "target_scales": "5,5,5,5,5",
        "initial_first": "0.1,0.1,0.1,0.1,0.1",
        "initial_second": "0.1,0.1,0.1,0.1,0.1",
        "times": "0:25:126",
        "samples": "10000",
    }
    calibrated = {
        "skills": "5",
        "target_scale": "5",
        "learning_rate": "0.05",
        "rate": repr(1 / 22),
        "initial_strength": "0.001",
        "shots": "800",
        "neurons_per_skill": "4",
        "times": "0:30000:121",
    }
    return [
        make(
            "fig1-2",
            "Fig. 1.2: falling and rising intensities",
            "linear-features",
            changed(four_points, intensities=falling),
            changed(four_points, intensities=rising),
        ),
        make(
            "fig1-3",
            "Fig. 1.3: benign overfitting, 100 modes",
            "linear-features",
            changed(benign, target=in_head),
            views={"upper": "loss", "lower": "noise_fit"},
        ),
        make(
            "fig1-4",
            "Fig. 1.4: pure noise, 100 and 400 modes",
            "linear-features",
            changed(pure_noise, intensities="1:1:100", target="0:0:100"),
            changed(pure_noise, intensities="1:1:400", target="0:0:400"),
            # There is no signal to fit.
            views={"lower": "noise_fit"},
        ),
        make(
            "fig1-5",
            "Fig. 1.5: malignant overfitting, 100 modes",
            "linear-features",
            changed(benign, target=in_tail),
            views={"upper": "loss", "lower": "noise_fit"},
        ),
        make(
            "fig3-3",
            "Fig. 3.3: modes one after the other",
            "diagonal-network",
            changed(three, samples="2000"),
            views={"upper": "linear_strength", "lower": "strength"},
        ),
        make(
            "fig3-4",
            "Fig. 3.4: stage-like training of five skills",
            "diagonal-network",
            five,
            views={"upper": "strength", "lower": "loss"},
        ),
        make(
            "saddle-to-saddle",
            "Saddle to saddle: small and large starts",
            "diagonal-network",
            changed(three, initial_first="0.003,0.003,0.003", initial_second="0.003,0.003,0.003", times="0:80:161"),
            changed(three, initial_first="0.3,0.3,0.3", initial_second="0.3,0.3,0.3", times="0:80:161"),
        ),
        make("stage-overlap", "Overlap of stages over start and rate", "diagonal-network", three, tab="phase"),
        make(
            "fig4-2",
            "Fig. 4.2: scaling laws in time, α = 0.3 and 0.9",
            "skills",
            {"exponent": "0.3", "skills": "inf", "times": "1:1e6:61log"},
            {"exponent": "0.9", "skills": "inf", "times": "1:1e6:61log"},
        ),
        make(
            "fig4-3",
            "Fig. 4.3: few basis functions",
            "skills",
            {"basis": "30", "skills": "inf", "times": "1:1e5:61log"},
            {"skills": "inf", "times": "1:1e5:61log"},
        ),
        make("table4-1", "Table 4.1: exponents of α = 0.6", "skills", {"skills": "inf", "times": "1:1e5:61log"}),
        make(
            "skill-curves",
            "Five skills emerge",
            "skills",
            {"skills": "5", "target_scale": "5", "initial_strength": "1e-6", "times": "0:40:121"},
        ),
        make("fig5-1", "Fig. 5.1: emergence, calibrated", "skills", calibrated),
        make(
            "plane-compute",
            "Compute plane: 30 and 1000 basis functions",
            "skills",
            {"skills": "inf", "basis": "30", "times": "100:1e7:61log"},
            {"skills": "inf", "basis": "1000", "times": "100:1e7:61log"},
        ),
        make(
            "fig-c1",
            "Fig. C.1: finitely many skills",
            "skills",
            {"skills": "1000", "times": "1:1e7:61log"},
            {"skills": "inf", "times": "1:1e7:61log"},
        ),
        make(
            "neural-collapse",
            "Neural collapse of a linear network",
            "linear-network",
            {"singular_values": "1,1,1", "initial": "random", "times": "0:20:81"},
        ),
        make(
            "fig6-2",
            "Fig. 6.2: small start (rich) and large start (lazy)",
            "scalar-network",
            {"initial_first": "0.03,-0.02", "initial_second": "0.02,0.03", "times": "0:12:121"},
            {"initial_first": "2,-1", "initial_second": "1,2", "times": "0:12:121"},
            views={"lower": "output"},
        ),
        make(
            "plane-gamma",
            "Plane of the growth: rich, and a lazy start",
            "scalar-network",
            {"initial_first": "0.1,-0.1", "initial_second": "0.1,0.1", "target": "1", "times": "0:8:81"},
            {"initial_first": "3,-3", "initial_second": "3,3", "target": "1", "times": "0:8:81"},
            views={"lower": "output"},
        ),
        make(
            "theorem1",
            "Theorem 1: Z = 1.7, E[x²] = 0.6",
            "scalar-network",
            {
                "initial_first": "0.4,-0.1",
                "initial_second": "0.3,0.2",
                "target": "1.3",
                "output_scale": "1.7",
                "input_power": "0.6",
                "times": "0:8:81",
            },
        ),
        make(
            "fig-c2",
            "Fig. C.2: parity mode by mode",
            "parity-mode",
            {"initial_first": "0.1", "initial_second": "0.1", "initial_third": "0.1", "times": "0:14:113"},
            views={"upper": "strength", "lower": "loss"},
        ),
    ]
