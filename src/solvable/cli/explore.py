"""``solvable explore``."""

from solvable import models
from solvable.cli.interrupts import ordinary_interrupts


def explore(model: str | None, host: str, port: int | None, browser: bool) -> None:
    """Serve the page until interrupted; an unknown model or a port in use is said in words before."""
    from solvable.explorer.server import serve

    if model is not None:
        models.get(model)
    with ordinary_interrupts():
        serve(model, host, port, browser)
