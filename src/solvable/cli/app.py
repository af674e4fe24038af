"""The commands and their flags. Modules that do the work are imported when a command runs."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from solvable import models
from solvable._version import __version__
from solvable.cli.own import COMMANDS, Json
from solvable.cli.remedies import naming_flags

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


for _function, _options in COMMANDS:
    app.command(**_options)(naming_flags(_function, inspect.signature(_function).parameters))


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
