"""Figures that a notebook shows without preparation. Imported when the first figure is made, because of matplotlib."""

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that a notebook shows as a picture if it is the result of a cell.

    Figures are made without pyplot, so that nothing global changes and none stays open. IPython shows such figures only
    after ``%matplotlib inline``, with its own renderer; this method makes the command unnecessary.
    """

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=100)
        return picture.getvalue()
