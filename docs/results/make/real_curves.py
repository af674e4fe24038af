"""Scaling laws and laws of training curves held against public tables and curves of language models.

1. The Chinchilla runs: the published re-analysis, standard errors, extrapolation beyond cuts, forms compared.
2. The over-trained models of Gadre et al.: small compute predicts large compute.
3. Curves under nine schedules: the final loss predicted from the first 20, 30 and 50 % of the steps, by the baselines,
   by the law of schedules with a free kernel, and with the kernel of the models of the other size.
4. Intervals of these forecasts: residuals alone, rolling origin with Student's t, conformal factor of the other size.
5. Three curves predict six others under other schedules.

Run as ``python docs/results/make/real_curves.py``, about four minutes on one core; it writes the ledger
``real-curves.json`` and the figure ``docs/figures/real-curves.png``.
"""

import dataclasses
import json
import math
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import solvable
from solvable.fits import scaling_law
from solvable.inference import Run, count_forks_once, example_curves, example_table
from solvable.inference.backtest import FACTORS, conformal_factor, early_to_late, fit_part
from solvable.inference.empirical_laws import PowerLaw, ScheduleLaw, borrowed_kernel, schedule_warnings
from solvable.plotting import COLOURS, few_ticks, new_figure, save_figure

DOCS = Path(__file__).parents[2]
SIZES = ("25M", "100M")
FRACTIONS = (0.2, 0.3, 0.5, 0.7)
NAMES = {
    "last-value": "last value",
    "power-law-steps": "power law in steps",
    "power-law": "power law in intrinsic time",
    "schedule": "law of schedules, free kernel",
    "schedule-borrowed": "law of schedules, kernel of the other size",
}
KINDS = ("constant", "cosine", "wsdcon", "wsd_", "wsdld")


def main() -> None:
    begin = time.process_time()
    curves = {size: example_curves(f"schedules-{size}") for size in SIZES}
    kernels = {size: kernel(count_forks_once(curves[size])) for size in SIZES}
    tables = {"chinchilla": chinchilla(), "overtraining": overtraining()}
    results = {size: forecasts(curves[size], kernels[other]) for size, other in (SIZES, SIZES[::-1])}
    content: dict[str, Any] = {
        **tables,
        "kernels": kernels,
        "early_to_late": errors_by_law(results),
        "early_to_late_by_schedule": errors_by_schedule(results),
        "intervals": intervals(results),
        "siblings": {
            rule: with_siblings(curves, kernels, rule == "with siblings") for rule in ("alone", "with siblings")
        },
        "three_curves_predict_six": {size: three_predict_six(curves[size]) for size in SIZES},
        "schedule_warnings": {
            run.name: schedule_warnings("power-law-steps", [run.part(slice(int(0.3 * run.size)))])
            for run in curves["25M"]
        },
    }
    seconds = time.process_time() - begin
    content["made"] = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "version": solvable.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "processor_seconds": round(seconds),
    }
    folder = Path(os.environ.get("OUT", DOCS / "results" / "ledgers"))
    (folder / "real-curves.json").write_text(json.dumps(content, indent=1) + "\n")
    draw(results, curves, kernels)
    print(json.dumps(content["early_to_late"], indent=1), json.dumps(content["intervals"], indent=1), seconds)


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=DOCS)
    return found.stdout.strip()


def chinchilla() -> dict[str, Any]:
    """The re-analysis to its digits and standard errors, and extrapolation from small compute."""
    frame = example_table("chinchilla").to_dataframe()
    rows = frame.sort_values("loss").iloc[:-5]
    huber = scaling_law(rows, robust="huber", resamples=1000)
    limit = scaling_law(rows, robust="huber", delta=1e-8, intervals="sandwich")
    student = scaling_law(rows, resamples=1000)
    found: dict[str, Any] = {
        "huber": {name: huber[name] for name in huber.names} | {"objective": huber.objective},
        "least_absolute_deviations": {name: limit[name] for name in limit.names},
        "standard_errors": dict(zip(huber.names, huber.parameters.standard_error.values.tolist(), strict=True)),
        "student": {name: student[name] for name in student.names},
        "student_standard_errors": dict(
            zip(student.names, student.parameters.standard_error.values.tolist(), strict=True)
        ),
        "discrepancy_per_decade": student.discrepancy,
    }
    best = student.compute_optimal([5.88e23]).isel(budget=0)
    found["optimum_at_5.88e23"] = {str(name): float(best[name]) for name in best.data_vars}
    found["beyond"] = [beyond(rows, cut) for cut in (5e19, 1e20, 3e20)]
    compared = student.compare()
    found["forms"] = {
        form: {name: _plain(compared[name].sel(form=form).item()) for name in compared.data_vars}
        for form in compared.form.values.tolist()
    }
    return found


def beyond(rows: Any, cut: float, column: str = "loss", **options: Any) -> dict[str, float]:
    early = scaling_law(rows[rows.compute <= cut], resamples=200, columns={"loss": column}, **options)
    late = rows[rows.compute > 2 * cut]
    predicted = early.predict(late.parameters.values, late.tokens.values)
    truth = late[column].values
    error = np.log(truth / predicted.loss.values)
    alone = np.hypot(predicted.noise, predicted.parameter_error).values
    shares = {
        f"held_{level}": float(
            np.mean((truth > predicted[f"loss_low{level}"]) & (truth < predicted[f"loss_high{level}"]))
        )
        for level in (68, 95)
    }
    return {
        "cut": cut,
        "fitted": int((rows.compute <= cut).sum()),
        "predicted": len(late),
        "largest_factor": float(late.compute.max() / cut),
        "rms_error": float(np.sqrt(np.mean(error**2))),
        **shares,
        "held_68_residuals_only": float(np.mean(np.abs(error) < alone)),
        "held_95_residuals_only": float(np.mean(np.abs(error) < 1.96 * alone)),
        "discrepancy_per_decade": early.discrepancy if early.discrepancy is not None else math.nan,
    }


def overtraining() -> dict[str, Any]:
    """Models of up to a tenth of the largest compute predict the others, one training set at a time."""
    frame = example_table("overtraining").to_dataframe()
    frame["compute"] = 6.0 * frame.parameters * frame.tokens
    found = {}
    for name, rows in frame.groupby("train_set"):
        try:
            small = rows.compute <= rows.compute.max() / 10
            law = scaling_law(rows[small], columns={"loss": "loss_c4_val"}, intervals="sandwich", discrepancy=0.02)
            late = rows[~small]
            predicted = law.predict(late.parameters.values, late.tokens.values)
            error = np.log(late.loss_c4_val.values / predicted.loss.values)
            inside = (late.loss_c4_val.values > predicted.loss_low95) & (
                late.loss_c4_val.values < predicted.loss_high95
            )
            found[str(name)] = {
                "fitted": int(small.sum()),
                "parameters": {key: law[key] for key in law.names},
                "errors": dict(zip(late.index.astype(str).tolist(), error.tolist(), strict=True)),
                "rms_error": float(np.sqrt(np.mean(error**2))),
                "held_95_with_2_percent_per_decade": float(inside.mean()),
            }
        except ValueError as error:
            found[str(name)] = {"refused": str(error)}
    return found


def kernel(runs: list[Run]) -> dict[str, float]:
    """Noise and its memory, from all runs of one size."""
    return borrowed_kernel(fit_part(ScheduleLaw(), [dataclasses.replace(run, group="all") for run in runs]))


def forecasts(runs: list[Run], borrowed: dict[str, float]) -> Any:
    with_widths = early_to_late(runs, {"schedule-borrowed": (ScheduleLaw(), borrowed)}, FRACTIONS, widths=True)
    free = early_to_late(runs, {"schedule": ScheduleLaw()}, FRACTIONS)
    return with_widths, free.sel(law=["schedule"])


def errors_of(results: dict[str, Any], law: str) -> np.ndarray:
    """Errors over runs of both sizes and fractions."""
    parts = []
    for with_widths, free in results.values():
        data = free if law == "schedule" else with_widths
        parts.append(data.error.sel(law=law).values)
    return np.concatenate(parts)


def _percentiles(errors: np.ndarray) -> list[float]:
    return [round(100 * float(np.quantile(np.abs(errors), level)), 3) for level in (0.5, 0.9)]


def errors_by_law(results: dict[str, Any]) -> dict[str, Any]:
    """Median and 90th percentile of the error of the final loss, in %."""
    return {
        law: {str(f): _percentiles(errors_of(results, law)[:, place]) for place, f in enumerate(FRACTIONS)}
        for law in NAMES
    }


def errors_by_schedule(results: dict[str, Any]) -> dict[str, Any]:
    names = [name for with_widths, _ in results.values() for name in with_widths.run.values.tolist()]
    found: dict[str, Any] = {}
    for kind in KINDS:
        rows = np.array([name.startswith(kind) for name in names])
        found[kind.rstrip("_")] = {
            law: {str(f): _percentiles(errors_of(results, law)[rows, place]) for place, f in enumerate(FRACTIONS)}
            for law in NAMES
        }
    return found


def intervals(results: dict[str, Any]) -> dict[str, Any]:
    """Shares of forecasts inside their intervals; those with too few records to measure a discrepancy have none."""
    found = {}
    for law in ("power-law-steps", "power-law", "schedule-borrowed"):
        errors, alone, widths, constant = [], [], [], []
        for with_widths, _ in results.values():
            one = with_widths.sel(law=law)
            errors.append(one.error.values)
            alone.append(np.hypot(one.noise, one.parameter_error).values)
            widths.append(np.sqrt(one.noise**2 + one.parameter_error**2 + one.discrepancy**2).values)
            constant.append(np.array([name.startswith("constant") for name in one.run.values.tolist()]))
        known = [np.isfinite(width) for width in widths]
        conformal: dict[str, list[bool]] = {"68": [], "95": []}
        for here, there in ((0, 1), (1, 0)):
            for level in (0.68, 0.95):
                factor = conformal_factor(errors[there][known[there]], widths[there][known[there]], level)
                inside = np.abs(errors[here]) <= factor * widths[here]
                conformal[str(round(100 * level))] += inside[known[here]].tolist()
        error, width, claimed, mask = (np.concatenate(part) for part in (errors, widths, alone, known))
        steady = mask & np.concatenate(constant)[:, None]
        found[law] = {
            "forecasts": int(mask.sum()),
            "without_interval": int((~mask).sum()),
            "residuals_only": [_share(error, claimed, mask, factor) for factor in (1.0, 1.96)],
            "rolling_origin": [_share(error, width, mask, factor) for factor in FACTORS],
            "rolling_origin_gaussian": [_share(error, width, mask, factor) for factor in (1.0, 1.96)],
            "rolling_origin_constant_rate": [_share(error, width, steady, factor) for factor in FACTORS],
            "conformal": [round(float(np.mean(conformal[level])), 3) for level in ("68", "95")],
            "median_error_percent": round(100 * float(np.median(np.abs(error))), 3),
        }
    return found


def with_siblings(curves: dict[str, list[Run]], kernels: dict[str, dict[str, float]], given: bool) -> dict[str, Any]:
    """Forecasts of `solvable.infer` with the kernel of the other size, whose runs are given as siblings or not."""
    inside: dict[str, list[bool]] = {"68": [], "95": []}
    errors, slopes, unknown = [], [], 0
    for size, other in (SIZES, SIZES[::-1]):
        for run in curves[size]:
            for fraction in FRACTIONS:
                report = solvable.infer(
                    run.part(run.steps <= fraction * run.steps[-1]),
                    "schedule",
                    fixed=kernels[other],
                    siblings=curves[other] if given else None,
                    uncertainty="none",
                )
                if not math.isfinite(report.discrepancy):
                    unknown += 1
                    continue
                found = report.predict([run.steps[-1]]).isel(time=0)
                errors.append(math.log(run.loss[-1] / float(found.loss)))
                slopes.append(report.discrepancy)
                for level, held in inside.items():
                    held.append(float(found[f"low{level}"]) <= run.loss[-1] <= float(found[f"high{level}"]))
    return {
        "forecasts": len(errors),
        "without_interval": unknown,
        "held": {level: round(float(np.mean(held)), 3) for level, held in inside.items()},
        "median_error_percent": round(100 * float(np.median(np.abs(errors))), 3),
        "median_discrepancy_percent_per_decade": round(100 * float(np.median(slopes)), 2),
    }


def _share(error: np.ndarray, width: np.ndarray, mask: np.ndarray, factor: float) -> float:
    return round(float(np.mean(np.abs(error[mask]) <= factor * width[mask])), 3)


def three_predict_six(runs: list[Run]) -> dict[str, Any]:
    """The law of schedules from three curves, held against the six others."""
    named = {run.name: run for run in runs}
    three = [named[name] for name in ("cosine_24000", "constant_24000", "wsdcon_9")]
    begin = time.process_time()
    found = fit_part(ScheduleLaw(), three)
    seconds = time.process_time() - begin
    theta = found.problem.theta(found.best.coordinates, three[0].group)
    errors = {
        name: np.log(run.loss / (found.problem.law.basis(theta, run) @ found.best.coefficients))
        for name, run in named.items()
        if run not in three
    }
    return {
        "mean_error_percent": round(100 * float(np.mean([np.mean(np.abs(one)) for one in errors.values()])), 3),
        "final_error_percent": {name: round(100 * float(one[-1]), 3) for name, one in errors.items()},
        "processor_seconds": round(seconds, 2),
    }


def draw(results: dict[str, Any], curves: dict[str, list[Run]], kernels: dict[str, dict[str, float]]) -> None:
    figure, axes = new_figure(3, width=4.8)
    _draw_forecast(axes[0], next(run for run in curves["100M"] if run.name == "cosine_24000"), kernels["25M"])
    axes[1].set_prop_cycle(color=COLOURS)
    for law, label in NAMES.items():
        errors = 100 * np.abs(errors_of(results, law))
        axes[1].plot([100 * f for f in FRACTIONS], np.median(errors, axis=0), "o-", label=label)
    axes[1].set(yscale="log", xlabel="known part of the steps (%)", ylabel="median error of the final loss (%)")
    axes[1].set_ylim(0.1, 60)
    axes[1].legend(fontsize="x-small", loc="upper right")
    names = [name for with_widths, _ in results.values() for name in with_widths.run.values.tolist()]
    width = 0.15
    for place, law in enumerate(NAMES):
        heights = []
        for kind in KINDS:
            rows = np.array([name.startswith(kind) for name in names])
            heights.append(100 * np.median(np.abs(errors_of(results, law)[rows, 1])))
        axes[2].bar(np.arange(len(KINDS)) + (place - 2) * width, heights, width, color=COLOURS[place], label=NAMES[law])
    axes[2].set_xticks(range(len(KINDS)), [kind.rstrip("_") for kind in KINDS])
    axes[2].set(yscale="log", xlabel="schedule", ylabel="median error from the first 30 % (%)")
    save_figure(figure, DOCS / "figures" / "real-curves.png")


def _draw_forecast(ax: Any, run: Run, borrowed: dict[str, float]) -> None:
    """One run, its known part, and three forecasts."""
    known = run.part(run.steps <= 0.3 * run.steps[-1])
    ax.plot(run.steps, run.loss, ".", markersize=3, color="0.6", label="measured later")
    ax.plot(known.steps, known.loss, ".", markersize=4, color=COLOURS[6], label="known: the first 30 %")
    chosen = {
        "power-law-steps": PowerLaw("steps"),
        "power-law": PowerLaw(),
        "schedule-borrowed": (ScheduleLaw(), borrowed),
    }
    for law, made in chosen.items():
        found = fit_part(made, [known])
        problem = found.problem
        theta = problem.theta(found.best.coordinates, known.group)
        values = problem.law.basis(theta, run)
        amplitudes = {
            column.term: value for column, value in zip(problem.columns, found.best.coefficients, strict=True)
        }
        total = values @ np.array([{**borrowed, **amplitudes}[term] for term in problem.law.terms])
        ax.plot(run.steps, total, color=COLOURS[list(NAMES).index(law)], label=NAMES[law])
    ax.set(xlabel="step", ylabel="loss", xscale="log", ylim=(2.8, 3.8))
    few_ticks(ax.xaxis)
    ax.legend(fontsize="x-small", title="100M parameters, cosine", title_fontsize="small")


def _plain(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
