"""``solvable explore``."""

from solvable import models


def explore(model: str | None, host: str, port: int | None, browser: bool) -> None:
    """Serve the page until interrupted; an unknown model or a port in use is said in words before."""
    from solvable.explorer.server import serve

    if model is not None:
        models.get(model)
    serve(model, host, port, browser)
