"""The explorer: an interactive web page for every model. Panel is imported only when a page is opened."""

from typing import Any


def explore(model: str | None = None) -> Any:
    """The explorer of a model, to be shown in a notebook: the last line of a cell, or ``.servable()`` in an app.

    From a terminal it is ``solvable explore``.

    Parameters
    ----------
    model
        Name of a model or one of the model classes; by default the first model.
    """
    from solvable.explorer.notebook import notebook_page

    return notebook_page(getattr(model, "name", model))
