"""The commands for networks, data and logs of your own, and their flags."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
# Functions with the options of typer's decorator, in the order of the help text.
COMMANDS: list[tuple[Callable[..., None], dict[str, Any]]] = []


def command(**options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to the commands."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        COMMANDS.append((function, options))
        return function

    return add


@command(
    help="Diagnose in which regime a network is, from a file of features or from a checkpoint and data.\n\n"
    "FEATURES is an .npz with train_features, train_outputs, train_labels, test_features, test_outputs, test_labels "
    "(and weights, bias of the last layer, for neural collapse). For a checkpoint, --data is an .npz with "
    "train_inputs, train_labels, test_inputs, test_labels. No file is unpickled."
)
def diagnose(
    features: Annotated[str | None, typer.Argument(help="File of features, outputs and labels (.npz).")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Weights: .safetensors or .pt (PyTorch), .eqx (Equinox), .npz by name (both).")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Function that makes the network, as module:function.")] = None,
    data: Annotated[str | None, typer.Option(help="Inputs and labels to run the network on (.npz).")] = None,
    json: Json = False,
    plot: Annotated[str | None, typer.Option(help="Plot the feature measures to this file (.png, .svg, .pdf).")] = None,
    initial: Annotated[
        str | None, typer.Option(help="Weights before training, to tell lazy from rich; files as for --checkpoint.")
    ] = None,
    output_field: Annotated[
        str | None, typer.Option(help="Name or index of the outputs, if the network returns several arrays.")
    ] = None,
) -> None:
    from solvable.cli.diagnose import diagnose as run

    run(features, checkpoint, model, data, json, plot, initial, output_field)


@command(
    help="Forecast how fast a network learns: exponents of the loss from its tangent kernel before training.\n\n"
    "DATA is an .npz with inputs and either targets (real numbers) or labels (integers). MODEL makes the network: "
    "module:function, which may take a key or a seed, or mlp:WIDTHxDEPTH for a ReLU network of that many layers."
)
def forecast(
    model: Annotated[str, typer.Option(help="module:function, or mlp:WIDTHxDEPTH such as mlp:1024x3.")],
    data: Annotated[str, typer.Option(help="Inputs, and targets or labels (.npz).")],
    checkpoint: Annotated[str | None, typer.Option(help="Use these weights instead of random initial ones.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of random initialisations (default: 3).")] = None,
    initial_outputs: Annotated[
        str, typer.Option(help="zero, or network: learn the difference between the targets and its own outputs.")
    ] = "zero",
    first_mode: Annotated[int | None, typer.Option(help="First mode of the power-law fits.")] = None,
    last_mode: Annotated[int | None, typer.Option(help="Last mode of the power-law fits.")] = None,
    landmarks: Annotated[int | None, typer.Option(help="Approximate the kernel from this number of columns.")] = None,
    key: Annotated[int, typer.Option(help="Random seed.", min=0, max=2**63 - 1)] = 0,
    json: Json = False,
    plot: Annotated[str | None, typer.Option(help="Plot spectrum, power and loss here (.png, .svg, .pdf).")] = None,
    time_limit: Annotated[
        float, typer.Option(help="Refuse work that takes longer than this number of seconds; inf for no limit.")
    ] = 600.0,
    outputs: Annotated[
        str, typer.Option(help="trace, or sum: a single gradient for the sum of the outputs, which is faster.")
    ] = "trace",
    log: Annotated[
        str | None, typer.Option(help="Log of the start of a run of this network: the forecast learns from it.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Learning rate of that run (gradient descent, or SGD).")
    ] = None,
    momentum: Annotated[float, typer.Option(help="Momentum of that run.", min=0)] = 0.0,
    loss: Annotated[
        str, typer.Option(help="What that run minimises: half-mse (summed over outputs), mse or squared.")
    ] = "half-mse",
) -> None:
    from solvable.cli.forecast import forecast as run

    options: dict[str, Any] = {
        "seeds": seeds,
        "initial_outputs": initial_outputs,
        "first_mode": first_mode,
        "last_mode": last_mode,
        "landmarks": landmarks,
        "key": key,
    }
    options |= {"time_limit": time_limit, "outputs": outputs}
    logged = {"log": log, "learning_rate": learning_rate, "momentum": momentum, "loss": loss}
    run(model, data, checkpoint, options, json, plot, logged)


@command(short_help="Measure whether the best learning rate transfers to wider networks.")
def transfer(
    data: Annotated[str, typer.Option(help="Inputs, and targets or labels (.npz).")],
    model: Annotated[
        str, typer.Option(help="standard or maximal-update (ReLU networks), or module:function(width, key).")
    ] = "maximal-update",
    widths: Annotated[str, typer.Option(help="Numbers of hidden units, best by factors of two.")] = "32,64,128",
    learning_rates: Annotated[
        str, typer.Option(help="Grid of rates: a list, or first:last:number and log, best by factors of two.")
    ] = "0.0009765625:1:11log",
    steps: Annotated[int, typer.Option(help="Number of training steps.")] = 200,
    seeds: Annotated[int, typer.Option(help="Number of paired seeds, 4 or more.")] = 8,
    optimiser: Annotated[str, typer.Option(help="sgd or adam.")] = "sgd",
    batch_size: Annotated[int | None, typer.Option(help="Samples per step (default: all).")] = None,
    depth: Annotated[int, typer.Option(help="Number of linear layers.")] = 3,
    loss: Annotated[
        str | None, typer.Option(help="mse, half-mse or cross-entropy (default: by the kind of targets).")
    ] = None,
    test_share: Annotated[float, typer.Option(help="Share of the data on which the final loss is measured.")] = 0.25,
    key: Annotated[int, typer.Option(help="Random seed.", min=0, max=2**63 - 1)] = 0,
    json: Json = False,
    plot: Annotated[str | None, typer.Option(help="Plot losses and best rates here (.png, .svg, .pdf).")] = None,
) -> None:
    """Measure whether the best learning rate of narrow networks is the best one of wide networks, with error bars.

    Every width is trained at every rate with every seed; the answer is how far the best rate moves per doubling of the
    width, and what tuning at the narrowest width costs at the widest.
    """
    from solvable.cli.transfer import transfer as run

    options: dict[str, Any] = {"steps": steps, "seeds": seeds, "optimiser": optimiser, "batch_size": batch_size}
    options |= {"depth": depth, "loss": loss, "key": key}
    run(model, data, widths, learning_rates, test_share, options, json, plot)


@command(
    help="Infer the law of a training log, or of a table of runs, with intervals and a forecast.\n\n"
    "LOG is a CSV, JSON lines or Parquet file, a TensorBoard event file or folder, or an export of Weights & Biases; "
    "columns are guessed, and the guess is printed. With --model scaling-law it is a table with one row per run: "
    "parameters, tokens (or compute) and final loss. Nothing is unpickled."
)
def infer(
    log: Annotated[list[str], typer.Argument(help="Log of one or more runs, or a table of runs.", metavar="LOG")],
    model: Annotated[
        str,
        typer.Option(
            help="Law: power-law, power-law-steps, broken-power-law, schedule, feature-scaling, feature-scaling-lazy, "
            "skills, or scaling-law for a table."
        ),
    ] = "power-law",
    at: Annotated[
        str | None, typer.Option(help="Forecast there: steps (compute of a table), or multiples such as 2x,10x.")
    ] = None,
    loss: Annotated[str | None, typer.Option(help="Column of the loss.")] = None,
    step: Annotated[str | None, typer.Option(help="Column of the time.")] = None,
    run: Annotated[str | None, typer.Option(help="Column that tells runs apart.")] = None,
    learning_rate: Annotated[str | None, typer.Option(help="Column of the learning rate.")] = None,
    warm_up: Annotated[float, typer.Option(help="Steps of warm-up before the first record.", min=0)] = 0,
    fixed: Annotated[list[str] | None, typer.Option(help="Known value, as name=value; may be repeated.")] = None,
    finished: Annotated[
        list[str] | None,
        typer.Option(
            help="Log of finished runs like these, of one size, for the law schedule: what a decay gains is taken from "
            "them, and the errors of forecasts of their ends widen the intervals. May be repeated."
        ),
    ] = None,
    ahead: Annotated[
        str | None,
        typer.Option(
            help="Table of steps and learning rates, such as a finished log: those of later steps lie ahead of this "
            "run. Of several runs in the table that of the same name is taken."
        ),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Compare with the empirical laws by prediction.")] = False,
    mask_spikes: Annotated[bool, typer.Option("--mask-spikes", help="Leave out records that are not finite.")] = False,
    uncertainty: Annotated[str, typer.Option(help="Intervals: profile, nuts or none.")] = "profile",
    form: Annotated[
        str,
        typer.Option(
            help="Form of the scaling law: parameters-tokens, equal-exponents, without-floor, compute, data-reuse."
        ),
    ] = "parameters-tokens",
    drop_largest: Annotated[
        int, typer.Option(help="Leave out the runs of a table with the largest losses.", min=0)
    ] = 0,
    resamples: Annotated[int, typer.Option(help="Resampled fits of a scaling law, for its intervals.", min=100)] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed.", min=0, max=2**31 - 1)] = 0,
    json: Json = False,
    plot: Annotated[str | None, typer.Option(help="Draw data, fit and forecast here (.png, .svg, .pdf).")] = None,
    save: Annotated[str | None, typer.Option(help="Save the report here (.nc, .zarr, .npz, .csv).")] = None,
) -> None:
    from solvable.cli.infer import infer as run_command

    options: dict[str, Any] = {
        "at": at,
        "loss": loss,
        "step": step,
        "run": run,
        "learning_rate": learning_rate,
        "warm_up": warm_up,
        "fixed": fixed or [],
        "finished": finished or [],
        "ahead": ahead,
        "compare": compare,
        "mask_spikes": mask_spikes,
        "uncertainty": uncertainty,
        "form": form,
        "drop_largest": drop_largest,
        "resamples": resamples,
        "seed": seed,
        "json": json,
        "plot": plot,
        "save": save,
    }
    run_command(log, model, options)
