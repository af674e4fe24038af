"""``solvable reproduce``: run the figures of a paper, test their claims, keep the ledger."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from solvable._version import __version__
from solvable.cli import show
from solvable.engines.progress import progress_bar
from solvable.files import check_writable, data_ending, save, write_atomically
from solvable.models.base import check_choice
from solvable.papers import Claim, figures, load_figure
from solvable.plotting import save_figure


def reproduce_paper(paper: str, chosen: list[str] | None, scale: str, out: str, as_json: bool) -> int:
    """Reproduce figures into a folder; 1 if a claim fails, else 0."""
    check_choice("scale", scale, ("quick", "full"))
    names = chosen or figures(paper)
    modules = {name: load_figure(paper, name) for name in names}
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / "claims.json")
    ledger: list[dict[str, Any]] = []
    with progress_bar(f"reproducing {paper}", len(modules)) as advance:
        for name, module in modules.items():
            begin = time.perf_counter()
            result = module.reproduce(scale)
            for part, dataset in result.datasets.items():
                save(dataset, folder / f"{name}-{part}{data_ending()}")
            save_figure(result.figure, folder / f"{name}.png")
            seconds = round(time.perf_counter() - begin, 2)
            title = (module.__doc__ or name).splitlines()[0]
            ledger += [{"figure": name, "title": title, "seconds": seconds, **c.to_dict()} for c in result.claims]
            # After every figure, so that an interrupted run leaves what it has found.
            _write_ledger(folder, paper, scale, ledger)
            if not as_json:
                _print_claims(f"{name}: {title} ({seconds:g} s)", result.claims)
            advance()
    failed = [claim for claim in ledger if not claim["passed"]]
    if as_json:
        print((folder / "claims.json").read_text())
    else:
        print(f"{len(ledger)} claims, {len(failed)} failed; ledger, data and figures in {folder}")
    for claim in failed:
        print(f"FAILED {claim['figure']}: {claim['name']}", file=sys.stderr)
    return 1 if failed else 0


def _write_ledger(folder: Path, paper: str, scale: str, ledger: list[dict[str, Any]]) -> None:
    import jax

    content = {
        "paper": paper,
        "scale": scale,
        "version": __version__,
        "device": jax.devices()[0].device_kind,
        "passed": sum(claim["passed"] for claim in ledger),
        "failed": sum(not claim["passed"] for claim in ledger),
        "claims": ledger,
    }
    write_atomically(folder / "claims.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _print_claims(title: str, claims: list[Claim]) -> None:
    rows = [
        [
            claim.name,
            claim.measured,
            claim.expected,
            f"± {show.text(claim.allowed)}",
            "" if claim.printed is None else claim.printed,
            "pass" if claim.passed else "FAIL",
        ]
        for claim in claims
    ]
    show.table(title, ["claim", "measured", "expected", "tolerance", "printed", ""], rows)
    print()
