"""Picture of docs/numerics/implicit-grids.md: cost and error of the marches of feature scaling, before and now.

Its points are those of ``python -m benchmarks._cost_error``, kept in ``march_cost.json`` beside this file.
"""

import json
from pathlib import Path

from solvable.plotting import COLOURS, new_figure

FIGURES = Path(__file__).parents[1]


def main() -> None:
    points = json.loads(Path(__file__).with_name("march_cost.json").read_text("utf-8"))
    figure, (left, right) = new_figure(2, width=4.8)
    for colour, (name, label) in zip(COLOURS, (("before", "before"), ("after", "now")), strict=False):
        rows = points[name]
        taken = [row["seconds"] for row in rows]
        left.loglog(taken, [row["error"] for row in rows], "o-", color=colour, label=f"{label}: error")
        left.loglog(taken, [row["stated"] for row in rows], "--", color=colour, label=f"{label}: estimate")
        for row in rows:
            left.annotate(
                f"{row['size']}", (row["seconds"], row["error"]), textcoords="offset points", xytext=(4, 4), fontsize=7
            )
        steps = points["steps"]
        right.loglog([row["size"] for row in steps], [row[name] for row in steps], "o-", color=colour, label=label)
    left.set(
        xlabel="processor seconds", ylabel="largest relative error of the loss", title="slot march by steps per decade"
    )
    left.legend(fontsize="x-small")
    sizes = [row["size"] for row in points["steps"]]
    first = points["steps"][0]["after"]
    right.loglog(sizes, [first * (size / sizes[0]) ** 3 for size in sizes], ":", color="grey", label="steps cubed")
    right.set(xlabel="steps", ylabel="processor seconds", title="march through whole steps")
    right.xaxis.set_ticks(sizes, [str(size) for size in sizes])
    right.xaxis.set_ticks([], minor=True)
    right.legend(fontsize="small")
    figure.savefig(FIGURES / "numerics-march-cost.png", dpi=90)


if __name__ == "__main__":
    main()
