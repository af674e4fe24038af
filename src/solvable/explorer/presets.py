"""Settings of the papers' figures: one preset or more for each figure that one or two settings of a model can show."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from solvable.explorer.address import State
from solvable.explorer.markup import told_apart
from solvable.settings import Setting

# Beginnings of the labels that name a figure, a table or an equation of a paper.
_OF_A_PAPER = re.compile(r"(Fig\.|Table|Eqs?\.|Theorem) ")


@dataclasses.dataclass(frozen=True)
class Preset:
    """A figure of a paper as a page: setting A, optionally setting B beside it, the open tab and what it shows."""

    paper: str
    figure: str
    label: str
    model: str
    a: Mapping[str, str]
    b: Mapping[str, str] | None = None
    tab: str = "curves"
    views: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def words(self) -> str:
        """What the preset shows: the figure, and both settings by what differs between them."""
        words = self.label if _OF_A_PAPER.match(self.label) else f"Further result: {self.label}"
        state = self.state()
        if state.b is None:
            return words
        told = told_apart(state.a, state.b)
        return words if told == ("A", "B") else f"{words} ({told[0]} beside {told[1]})"

    def state(self) -> State:
        b = None if self.b is None else _setting(self.model, self.b)
        return State(_setting(self.model, self.a), b, self.tab, views=self.views)


def _setting(model: str, texts: Mapping[str, str]) -> Setting:
    setting = Setting(model)
    for key, text in texts.items():
        setting = setting.change(key, text)
    return setting


def presets_of(model: str) -> list[Preset]:
    """The presets of one model."""
    return [preset for preset in PRESETS if preset.model == model]


def _with(common: Mapping[str, str], **more: str) -> dict[str, str]:
    return {**common, **more}


def _linear_grokking() -> list[Preset]:
    def make(figure: str, label: str, a: Mapping[str, str], b: Mapping[str, str] | None = None, **more: Any) -> Preset:
        return Preset("linear-grokking", figure, label, "linear-estimator", a, b, **more)

    two_layers = {"outputs": "5", "learning_rate": "0.5", "times": "1:3000:61log", "dimension": "300"}
    noisy = {"label_noise": "0.1", "threshold": "0.05"}
    return [
        make("fig1", "Fig. 1: aspect ratio 0.1", {"aspect_ratio": "0.1", "times": "1:1000:61log"}),
        make("fig1", "Fig. 1: aspect ratios 0.9 and 1.5", {"aspect_ratio": "0.9"}, {"aspect_ratio": "1.5"}),
        make(
            "fig2",
            "Fig. 2: 50 and 700 outputs",
            {"outputs": "50", "times": "10:3e6:61log"},
            {"outputs": "700", "times": "10:3e6:61log"},
        ),
        make("fig3", "Fig. 3: weight decay 1e-5 and 1e-2", {"weight_decay": "1e-5"}, {"weight_decay": "0.01"}),
        make("fig3", "Fig. 3: weight decay 1e-3", {"weight_decay": "0.001"}),
        make(
            "fig4",
            "Fig. 4: delay over weight decay and outputs",
            {},
            tab="phase",
            views={"plane": "delay", "px": "weight_decay", "py": "outputs"},
        ),
        make(
            "fig4",
            "Fig. 4: delay over weight decay and aspect ratio",
            {},
            tab="phase",
            views={"plane": "delay", "px": "weight_decay", "py": "aspect_ratio"},
        ),
        make(
            "fig4",
            "Fig. 4: delay over outputs and aspect ratio",
            {},
            tab="phase",
            views={"plane": "delay", "px": "outputs", "py": "aspect_ratio"},
        ),
        make(
            "fig5",
            "Fig. 5: hidden layers of width 50 and 200",
            _with(two_layers, width="50", threshold="0.0004"),
            _with(two_layers, width="200", threshold="0.0001"),
        ),
        make("fig6", "Fig. 6: late times at aspect ratio 0.9", {"times": "1e3:1e6:61log"}),
        make(
            "eq12",
            "Eq. 12: delay over aspect ratio and threshold",
            {},
            tab="phase",
            views={"plane": "delay", "px": "aspect_ratio", "py": "threshold"},
        ),
        make(
            "eq16",
            "Eq. 16: where weight decay ends",
            {"weight_decay": "0.01"},
            tab="phase",
            views={"plane": "limit", "px": "aspect_ratio", "py": "weight_decay"},
        ),
        make(
            "output-maximum",
            "The number of outputs with the longest delay",
            {"outputs": "20"},
            tab="phase",
            views={"plane": "delay", "px": "outputs", "py": "aspect_ratio"},
        ),
        make("eq19", "Eq. 19: two layers", _with(two_layers, width="50", threshold="0.0001")),
        make("initial-scale", "Larger initial weights: α = 4 and 1", {"initial_scale": "4"}, {}),
        make("label-noise", "Label noise at aspect ratios 0.9 and 1.5", noisy, _with(noisy, aspect_ratio="1.5")),
        make(
            "minibatch",
            "Batches of 100 samples, and full batches",
            {"batch_size": "100", "theory_dimension": "400", "times": "1:1e4:41log"},
            {"times": "1:1e4:41log"},
        ),
    ]


def _delayed_features() -> list[Preset]:
    def make(figure: str, label: str, a: Mapping[str, str], b: Mapping[str, str] | None = None, **more: Any) -> Preset:
        return Preset("delayed-features", figure, label, "committee", a, b, **more)

    eye4 = "1,0,0,0;0,1,0,0;0,0,1,0;0,0,0,1"
    four = {
        "samples_per_dimension": "4.5",
        "activation": "quadratic(0.05)",
        "initial_overlap": eye4,
        "initial_alignment": "0.1;-0.1;0.1;-0.1",
        # Gradient flow in the units of gradient descent, which simulates the same setting.
        "training": "flow",
        "learning_rate": "0.2",
        "times": "25:4000:23log",
        "dimension": "200",
    }
    signs = [0.2 * (-1) ** place for place in range(10)]
    rows = [[one * other + (row == column) for column, other in enumerate(signs)] for row, one in enumerate(signs)]
    ten = {
        **four,
        "output_scale": "0.5",
        "learning_rate": "0.25",
        "initial_alignment": ";".join(f"{one:g}" for one in signs),
        "initial_overlap": ";".join(",".join(f"{one:.3g}" for one in row) for row in rows),
        "times": "16:4800:19log",
    }
    early = {
        "samples_per_dimension": "inf",
        "activation": "quadratic(0.1)",
        "initial_overlap": "1,0;0,1",
        "initial_alignment": "0.01;-0.01",
        "output_scale": "0.001",
        "learning_rate": "0.1",
        "times": "0:1400:71",
    }
    # Two neurons that overlap a little.
    two = {
        "samples_per_dimension": "2",
        "activation": "quadratic(0.5)",
        "output_scale": "1",
        "initial_overlap": "1,0.2;0.2,1",
        "initial_alignment": "0.3;-0.1",
        "learning_rate": "0.1",
        "times": "0:120:41",
    }
    online = {**two, "samples_per_dimension": "60", "solver": "online", "times": "0:40:41"}
    return [
        make("fig2", "Fig. 2: two neurons, γ = 2", two),
        make(
            "fig3",
            "Fig. 3: γ = 2 beside the online limit",
            two,
            _with(two, samples_per_dimension="inf"),
        ),
        make(
            "eq15",
            "Eqs. 14, 15: online limit, α = 0.5 and 2",
            _with(online, output_scale="0.5"),
            _with(online, output_scale="2"),
        ),
        make(
            "eq18",
            "Eq. 18: the gap of the losses, γ = 10",
            _with(two, samples_per_dimension="10", learning_rate="0.2", times="1:30:30"),
        ),
        make("eq20", "Eqs. 19, 20: escape with many samples", early, views={"lower": "alignment", "yscale": "log"}),
        make(
            "agreement",
            "γ = 8, ε = 1, one neuron",
            {
                "samples_per_dimension": "8",
                "activation": "quadratic(1)",
                "output_scale": "1",
                "initial_alignment": "0.3",
                "initial_overlap": "1",
                "learning_rate": "0.05",
                "times": "0:60:31",
            },
        ),
        make("agreement", "γ = 3 with weight decay", _with(two, samples_per_dimension="3", weight_decay="0.2")),
        make("wide", "Ten neurons that grok", ten),
        make("grokking", "Four neurons that grok, α = 0.5", _with(four, output_scale="0.5")),
        make(
            "grokking",
            "Four neurons that grok later, α = 2",
            _with(four, output_scale="2", learning_rate="0.1", times="50:16000:23log"),
        ),
    ]


def _layerwise() -> list[Preset]:
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
            _with(four_points, intensities=falling),
            _with(four_points, intensities=rising),
        ),
        make(
            "fig1-3",
            "Fig. 1.3: benign overfitting, 100 modes",
            "linear-features",
            _with(benign, target=in_head),
            views={"upper": "loss", "lower": "noise_fit"},
        ),
        make(
            "fig1-4",
            "Fig. 1.4: pure noise, 100 and 400 modes",
            "linear-features",
            _with(pure_noise, intensities="1:1:100", target="0:0:100"),
            _with(pure_noise, intensities="1:1:400", target="0:0:400"),
            # There is no signal to fit.
            views={"lower": "noise_fit"},
        ),
        make(
            "fig1-5",
            "Fig. 1.5: malignant overfitting, 100 modes",
            "linear-features",
            _with(benign, target=in_tail),
            views={"upper": "loss", "lower": "noise_fit"},
        ),
        make(
            "fig3-3",
            "Fig. 3.3: modes one after the other",
            "diagonal-network",
            _with(three, samples="2000"),
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
            _with(three, initial_first="0.003,0.003,0.003", initial_second="0.003,0.003,0.003", times="0:80:161"),
            _with(three, initial_first="0.3,0.3,0.3", initial_second="0.3,0.3,0.3", times="0:80:161"),
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


def _feature_scaling() -> list[Preset]:
    def make(figure: str, label: str, a: Mapping[str, str], b: Mapping[str, str] | None = None, **more: Any) -> Preset:
        return Preset("feature-scaling", figure, label, "feature-scaling", a, b, **more)

    flow = {"modes": "inf", "training": "flow", "times": "1:1e5:41log"}
    # Late times need the limit of small steps; a flow time of 1 is 20 steps.
    noisy = {"modes": "inf", "source": "0.4", "learning_rate": "0.05", "times": "20:2e5:31log"}
    linear = {"capacity": "2", "features": "100", "learning_rate": "0.01", "modes": "600"}
    return [
        make(
            "fig1",
            "Fig. 1: phases over capacity and source",
            flow,
            tab="phase",
            views={"plane": "time", "px": "capacity", "py": "source"},
        ),
        make("fig1", "Fig. 1: hard task, rich and lazy", flow, _with(flow, richness="0")),
        make("fig1", "Fig. 1: super-easy task", _with(flow, source="3.6")),
        make(
            "fig2",
            "Fig. 2: 64 features",
            {"features": "64", "modes": "400", "times": "1:300:31log"},
            {"modes": "400", "times": "1:300:31log"},
        ),
        make(
            "fig3",
            "Fig. 3: batches of 4 and 64",
            {"features": "128", "batch_size": "4", "modes": "400", "times": "1:100:21log", "exact_batch": "true"},
            {"features": "128", "batch_size": "64", "modes": "400", "times": "1:100:21log", "exact_batch": "true"},
        ),
        make(
            "fig4",
            "Fig. 4: 64 and 256 features over time",
            _with(flow, richness="0.75", features="64", times="1:1e4:31log"),
            _with(flow, richness="0.75", features="256", times="1:1e4:31log"),
        ),
        make("fig10", "Fig. 10: hard task β = 0.4", _with(flow, source="0.4", times="1:1e8:65log")),
        make("fig11", "Fig. 11: hard task of the linear network", _with(linear, source="0.2", times="1:300:31log")),
        make(
            "fig12",
            "Fig. 12: easy task of the linear network",
            _with(linear, source="1.2", times="1:300:31log"),
            views={"lower": "kernel_growth"},
        ),
        make("eq8", "Eq. 8: a training set of 32 samples", {"samples": "32", "modes": "300", "times": "1:300:31log"}),
        make(
            "sgd-noise",
            "Batch noise stops feature learning",
            _with(noisy, batch_size="1", solver="slot-march"),
            _with(noisy, solver="exponential-midpoint"),
            views={"lower": "kernel_growth"},
        ),
        make("table1", "Table 1: compute exponents of β = 0.5", flow),
    ]


PRESETS: tuple[Preset, ...] = (*_linear_grokking(), *_delayed_features(), *_layerwise(), *_feature_scaling())
