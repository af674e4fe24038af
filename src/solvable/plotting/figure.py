"""Figures that a notebook shows by themselves."""

import io

from matplotlib.figure import Figure

_DOTS_PER_INCH = 100


class ShownFigure(Figure):
    """A matplotlib figure that shows itself as a picture where it is the result of a notebook's cell.

    Figures are made here without pyplot, so that nothing global changes and none is left open. IPython shows such a
    figure only after ``%matplotlib inline``; with these methods it needs no preparation. Where that command was given,
    IPython prefers its own way, and the picture appears once.
    """

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=_DOTS_PER_INCH)
        return picture.getvalue()
