"""The commands and their flags. Modules that do the work are imported when a command runs."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from solvable import models
from solvable._version import __version__

app = typer.Typer(
    help="Exactly solvable models of how neural networks learn: predict, simulate, compare, reproduce.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
VERBS = {
    "predict": "Training and test curves of a model, from theory.",
    "simulate": "Train the finite-size system described by the theory, once per seed.",
    "compare": "Compare theory and simulation, with standard errors and z-scores.",
    "grokking-time": "Times at which training and test accuracy are reached, and the delay between them.",
    "phase-diagram": "The grokking time over a plane of two parameters.",
}


def _print_version(asked: bool) -> None:
    if asked:
        print(f"solvable {__version__}")
        raise typer.Exit


@app.callback()
def solvable(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Exactly solvable models of how neural networks learn: predict, simulate, compare, reproduce."""


def _as_command(name: str, summary: str, function: Callable[..., None]) -> Any:
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, help=summary)(function)
    return typer.main.get_command(single)


# Commands that only some models have, and the method that they need.
_METHODS = {"grokking-time": "grokking_time", "phase-diagram": "phase_diagram"}


def _model_group(verb: str) -> type[TyperGroup]:
    """A group of commands, one per model. A model is imported, and its flags are made, when its command is called."""

    class ModelGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(models.names(_METHODS.get(verb)))

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in models.names():
                return None
            return _as_command(cmd_name, models.names()[cmd_name], lambda: None)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args[0].startswith("-"):
                return super().resolve_command(ctx, args)
            if verb == "sweep":
                from solvable.cli.sweep import command_for
            else:
                from solvable.cli.commands import command_for

            model = models.get(args[0])
            return args[0], _as_command(args[0], models.names()[args[0]], command_for(verb, model)), args[1:]

    return ModelGroup


for _verb, _help in VERBS.items():
    app.add_typer(
        typer.Typer(cls=_model_group(_verb), help=_help, no_args_is_help=True, rich_markup_mode=None), name=_verb
    )

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
sweeps = typer.Typer(
    cls=_model_group("sweep"),
    help="Compute a quantity over a grid of parameters, in a store that survives crashes and can be extended.",
    rich_markup_mode=None,
)
app.add_typer(sweeps, name="sweep")


@sweeps.callback(invoke_without_command=True)
def sweep(
    ctx: typer.Context,
    status: Annotated[str | None, typer.Option(help="Print how much of this store is computed, and stop.")] = None,
    json: Json = False,
) -> None:
    if status is not None:
        from solvable.cli.sweep import show_status

        show_status(status, json)
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())
        raise typer.Exit


data = typer.Typer(help="Image data sets for networks: list, download or add them.", rich_markup_mode=None)
app.add_typer(data, name="data", no_args_is_help=True)
Folder = Annotated[
    str | None, typer.Option(help="Folder of the image sets (default: $SOLVABLE_DATA, or the user's cache).")
]


@data.command("list", help="List the image sets, and which of them are on this machine.")
def list_data(folder: Folder = None, json: Json = False) -> None:
    from solvable.cli.listings import list_data as run

    run(folder, json)


@data.command("fetch", help="Download image sets that are not here yet, and verify those that are.")
def fetch_data(
    names: Annotated[list[str], typer.Argument(help="Image sets, named as in 'solvable data list'.", metavar="NAME")],
    folder: Folder = None,
) -> None:
    from solvable.cli.listings import fetch_data as run

    run(names, folder)


@data.command("add", help="Add an image set from an archive that you have: cifar-100 from cifar-100-binary.tar.gz.")
def add_data(
    name: Annotated[str, typer.Argument(help="Image set: cifar-100.", metavar="NAME")],
    file: Annotated[str, typer.Argument(help="The archive, which is read and not unpacked.", metavar="FILE")],
    folder: Folder = None,
) -> None:
    from solvable.cli.listings import add_data as run

    run(name, file, folder)


@app.command("models", help="List the models.")
def list_models(json: Json = False) -> None:
    from solvable.cli.commands import show_models

    show_models(json)


@app.command(
    help="Reproduce figures and tables of papers, test their claims, and write a report. "
    "Figures that are finished and unchanged are not computed again."
)
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Papers, each with some of its figures if not all are wanted; or 'all'. By default, list them. "
            "'status' prints the last full run of every figure.",
            metavar="PAPER",
        ),
    ] = None,
    scale: Annotated[str, typer.Option(help="quick (minutes on two cores) or full (the paper's size).")] = "quick",
    out: Annotated[str, typer.Option(help="Folder for report, ledger, data and figures.")] = "reproduction",
    only: Annotated[str | None, typer.Option(help="failing: show only what failed.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute everything again.")] = False,
    json: Json = False,
) -> None:
    if not names:
        from solvable.cli.listings import list_papers

        list_papers(json)
        raise typer.Exit
    if names == ["status"]:
        from solvable.cli.campaign import status

        raise typer.Exit(status(json))
    from solvable.cli.reproduce import reproduce as run

    raise typer.Exit(run(names, scale, out, json, only, fresh))


campaigns = typer.Typer(
    help="Reproduce many figures at full scale, in pieces of limited length.", rich_markup_mode=None
)
app.add_typer(campaigns, name="campaign", no_args_is_help=True)


@campaigns.command(
    "run",
    help="Reproduce figures side by side, each in a process of its own, and write one ledger per paper. "
    "Figures without a full run come first. The same command goes on where an earlier one stopped.",
)
def run_campaign(
    names: Annotated[
        list[str], typer.Argument(help="Papers, each with some of its figures; or 'all'.", metavar="PAPER")
    ],
    scale: Annotated[str, typer.Option(help="quick or full (the paper's size).")] = "full",
    out: Annotated[str, typer.Option(help="Folder for ledgers, data and figures.")] = "campaign",
    limit: Annotated[float, typer.Option(help="Seconds after which a figure is stopped.")] = 600.0,
    total: Annotated[float, typer.Option(help="Seconds after which the campaign stops.")] = 3600.0,
    processes: Annotated[int, typer.Option(help="Figures at the same time.")] = 1,
    commit: Annotated[str | None, typer.Option(help="Commit for the ledger (default: that of the source).")] = None,
    ledgers: Annotated[str | None, typer.Option(help="Ledgers that decide which figures come first.")] = None,
) -> None:
    from solvable.cli.campaign import campaign as run

    raise typer.Exit(run(names, scale, out, limit, total, processes, commit, ledgers))


@campaigns.command("merge", help="Add the ledgers of campaigns to those of a folder.")
def merge_campaigns(
    folders: Annotated[list[str], typer.Argument(help="Folders of campaigns.", metavar="FOLDER")],
    into: Annotated[str, typer.Option(help="Folder of the ledgers that are added to.")],
) -> None:
    from solvable.cli.campaign import merge as run

    raise typer.Exit(run(folders, into))


@app.command(
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


@app.command(
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


@app.command(short_help="Measure whether the best learning rate transfers to wider networks.")
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


@app.command(
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


@app.command(help="Compare theory and simulation for the linear estimator at three aspect ratios.")
def demo(out: Annotated[str, typer.Option(help="Folder for the figure and the data.")] = "demo") -> None:
    from solvable.cli.demo import run_demo

    run_demo(out)


@app.command(help="Serve a page on this machine, or write its stories to files: move a slider and watch theory answer.")
def explore(
    model: Annotated[list[str] | None, typer.Argument(help="Model to begin with; with --export, models.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (default: 5006, or the next free one).")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any other is reachable by others.")] = ("127.0.0.1"),
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    warm_up: Annotated[
        bool, typer.Option(help="Compile all models in the background, for first curves at once.")
    ] = True,
    export: Annotated[
        str | None, typer.Option(help="Write the stories as pages that need no server into this folder, and end.")
    ] = None,
) -> None:
    from solvable.cli.interrupts import ordinary_interrupts
    from solvable.explorer.server import serve
    from solvable.stories import export as export_stories

    if export is not None:
        pages = export_stories(export, model or [])
        print(f"{len(pages) - 1} stories: open {pages[0]}")
        return
    if model and len(model) > 1:
        raise ValueError(f"a page starts with one model, not with {len(model)}; --export takes several")
    for name in model or []:
        models.get(name)
    with ordinary_interrupts():
        serve(model[0] if model else None, host, port, browser, warm_up)
