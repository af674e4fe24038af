"""``solvable data``: which image sets there are, and fetching them before they are needed."""

import json
import sys

from solvable.cli import show
from solvable.cli.outputs import check_folder
from solvable.networks.data import data_folder, fetch_images, image_sets, stored_images
from solvable.networks.data.catalogue import find


def list_data(folder: str | None, as_json: bool) -> None:
    """The image sets, and which of them are on this machine."""
    stored = stored_images(folder)
    if as_json:
        sets = {name: {"title": title, "bytes": stored.get(name)} for name, title in image_sets().items()}
        print(json.dumps({"folder": str(data_folder(folder)), "sets": sets}))
        return
    rows = []
    for name, title in image_sets().items():
        known = find(name)
        kept = f"{stored[name] / 1e6:.1f} MB" if name in stored else "not here"
        rows.append([name, title, "x".join(map(str, known.shape)), known.train, known.test, kept])
    show.table(
        f"images in {data_folder(folder)}", ["name", "what it is", "pixels", "train", "test", "kept"], rows, words=3
    )


def fetch_data(names: list[str], folder: str | None) -> None:
    """Fetch image sets that are not here yet, and check those that are."""
    for name in names:
        find(name)
    check_folder("folder", str(data_folder(folder)))
    for name in names:
        source = fetch_images(name, folder=folder, progress=True)
        print(f"{name}: {data_folder(folder) / name}.npz is whole (from {source})", file=sys.stdout)
