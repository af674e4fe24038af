"""Pictures: their endings in any case, and their paths checked before the work."""

from pathlib import Path

import pytest

from solvable.plotting import check_figure_path, new_figure, save_figure


@pytest.mark.parametrize("ending", [".PNG", ".Svg", ".PDF"])
def test_endings_of_pictures_may_be_in_upper_case(tmp_path: Path, ending: str) -> None:
    figure, _ = new_figure()
    path = save_figure(figure, check_figure_path(tmp_path / f"figure{ending}"))
    assert path.name == f"figure{ending}"
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[ending.lower()]
    assert path.read_bytes().startswith(start)


def test_paths_of_pictures_are_checked_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for path, words in (
        (tmp_path / "figure.gif", "'figure.gif' must end in one of .png, .svg, .pdf"),
        (tmp_path / "nowhere" / "figure.png", "there is no folder .*nowhere; make it first"),
        (tmp_path / "folder.png", "it is a folder; name a file"),
        (Path("/proc/figure.png"), "cannot write /proc/figure.png"),
    ):
        with pytest.raises(ValueError, match=words):
            check_figure_path(path)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]
