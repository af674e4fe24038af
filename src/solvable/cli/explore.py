"""``solvable explore``."""

from solvable import models
from solvable.cli.interrupts import ordinary_interrupts


def explore(model: list[str], host: str, port: int | None, browser: bool) -> None:
    """Serve the page until interrupted; an unknown model or a port in use is said in words before."""
    from solvable.explorer.server import serve

    if len(model) > 1:
        raise ValueError(f"a page begins with one model, not with {len(model)}; --export takes several")
    for name in model:
        models.get(name)
    with ordinary_interrupts():
        serve(model[0] if model else None, host, port, browser)


def export_stories(model: list[str], folder: str) -> None:
    """Write the stories of the models, or of all that have one, and say where."""
    from solvable.stories import export

    paths = export(folder, model)
    print(f"{len(paths) - 1} stories: open {paths[0]}")
