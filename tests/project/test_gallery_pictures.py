"""The pictures of the gallery keep the colours of thin lines when they are reduced."""

import io

import numpy as np
import pytest
from paper_gallery import fewer_colours
from PIL import Image

from solvable.plotting import COLOURS, new_figure


@pytest.mark.parametrize("colours", [64, 128])
def test_lines_keep_their_colours(colours: int) -> None:
    """Lines one point wide in all colours of the palette, in a picture that is mostly white, grey and black."""
    figure, axes = new_figure(2)
    for place, colour in enumerate(COLOURS):
        axes[0].plot([0, 1], [place, place + 1], color=colour, linewidth=1, label=f"line {place}")
        axes[1].plot([0, 1], [place, place], color="0.1", linewidth=0.5 + place)
    axes[0].legend()
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=80)
    whole = Image.open(file).convert("RGB")
    reduced = np.asarray(fewer_colours(whole, colours).convert("RGB"), float).reshape(-1, 3)
    present = np.asarray(whole, float).reshape(-1, 3)
    for colour in COLOURS:
        wanted = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)], float)
        # Of all levels of 255; neighbouring colours of the palette are at least 50 apart.
        assert np.abs(present - wanted).max(axis=1).min() < 3
        assert np.abs(reduced - wanted).max(axis=1).min() < 25, colour
