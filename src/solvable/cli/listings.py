"""``solvable data`` and ``solvable reproduce`` without arguments: what there is, without computing anything."""

import json

from solvable import papers
from solvable.cli import show
from solvable.cli.outputs import check_folder
from solvable.networks.data import add_images, data_folder, fetch_images, image_sets, stored_images
from solvable.networks.data.catalogue import find
from solvable.papers.report.outcomes import title


def list_papers(as_json: bool) -> None:
    """Print every paper with its figures and tables, and what each shows."""
    found = {paper: {figure: title(paper, figure) for figure in papers.figures(paper)} for paper in papers.papers()}
    if as_json:
        print(json.dumps(found))
        return
    for paper, figures in found.items():
        rows = [list(row) for row in figures.items()]
        show.table(f"{paper}: {papers.title(paper)}", ["figure", "what it shows"], rows, text_columns=2)
        print()
    print("solvable reproduce PAPER [FIGURE ...] computes figures of a paper, solvable reproduce all every one.")


def list_data(folder: str | None, as_json: bool) -> None:
    """Print the image sets, and which of them are on this machine."""
    stored = stored_images(folder)
    if as_json:
        sets = {name: {"title": text, "bytes": stored.get(name)} for name, text in image_sets().items()}
        print(json.dumps({"folder": str(data_folder(folder)), "sets": sets}))
        return
    rows = []
    for name, description in image_sets().items():
        known = find(name)
        kept = f"{stored[name] / 1e6:.1f} MB" if name in stored else "not here"
        rows.append([name, description, "x".join(map(str, known.shape)), known.train, known.test, kept])
    columns = ["name", "description", "pixels", "train", "test", "stored"]
    show.table(f"images in {data_folder(folder)}", columns, rows, text_columns=3)


def fetch_data(names: list[str], folder: str | None) -> None:
    """Download image sets that are not here yet, and verify those that are."""
    for name in names:
        find(name)
    check_folder("folder", str(data_folder(folder)))
    for name in names:
        source = fetch_images(name, folder=folder, progress=True)
        print(f"{name}: {data_folder(folder) / name}.npz is complete (from {source})")


def add_data(name: str, file: str, folder: str | None) -> None:
    """Keep an image set from an archive that a person has downloaded."""
    find(name)
    check_folder("folder", str(data_folder(folder)))
    kept, source = add_images(name, file, folder=folder)
    print(f"{name}: {kept} is complete (from {source})")
