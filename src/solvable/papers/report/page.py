"""The report: one HTML file with every figure beside its claims. Nothing in it is loaded from elsewhere."""

import base64
import struct
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from solvable import papers
from solvable.papers.claims import relation
from solvable.papers.report.ledger import by_paper, counts, number, sentence, tolerance
from solvable.papers.report.markup import html_of
from solvable.papers.report.outcomes import Outcome

# A picture wider than this, relative to its height, has several panels side by side: its claims go below it.
_WIDE = 1.7


def page(
    outcomes: Sequence[Outcome],
    folders: Mapping[str, Path],
    scale: str,
    environment: Mapping[str, str],
    only_failing: bool = False,
    unfinished: Sequence[str] = (),
) -> str:
    """The report as HTML. ``folders`` say where each paper's pictures are; ``unfinished`` figures are named at the top.

    With ``only_failing`` the figures whose claims all hold are left out, and the errata; the counts are of everything.
    """
    shown = [outcome for outcome in outcomes if not (only_failing and outcome.holds)]
    errata = {paper: "" if only_failing else papers.errata(paper) for paper in by_paper(shown)}
    here = files(__package__)
    return Template((here / "page.html").read_text("utf-8")).substitute(
        title="Reproduction report",
        style=(here / "page.css").read_text("utf-8"),
        navigation=_navigation(shown, errata),
        summary=_summary(outcomes, scale, environment, len(shown) if only_failing else None, unfinished),
        index=_index(shown),
        papers="\n".join(_paper(paper, own, folders[paper], errata[paper]) for paper, own in by_paper(shown).items()),
        environment=_environment(environment),
    )


def duration(seconds: float) -> str:
    """As people say it."""
    if seconds < 100:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _summary(
    outcomes: Sequence[Outcome],
    scale: str,
    environment: Mapping[str, str],
    left: int | None,
    unfinished: Sequence[str],
) -> str:
    found = counts(outcomes)
    boxes = [
        ("claims passed", found["passed"], "good"),
        ("claims failed", found["failed"], "bad" if found["failed"] else ""),
        ("figures raised", found["errors"], "bad" if found["errors"] else ""),
        ("figures", found["figures"], ""),
        ("computing", duration(sum(outcome.seconds for outcome in outcomes)), ""),
    ]
    items = "".join(f'<li><b class="{tone}">{escape(str(value))}</b>{label}</li>' for label, value, tone in boxes)
    made = f"Scale {scale}, solvable {environment['solvable']} on {environment['device']}, {environment['date']}."
    lines = [f'<p class="quiet">{escape(made)}</p>', f'<ul class="counts">{items}</ul>']
    if unfinished:
        names = ", ".join(f"<code>{escape(name)}</code>" for name in unfinished)
        lines.append(f'<p><b class="bad">Interrupted:</b> Not in this report: {names}.</p>')
    if left is not None:
        lines.append(f"<p>Only what failed is shown: {left} of {found['figures']} figures.</p>")
    else:
        lines.append(
            '<p class="filter"><label><input type="checkbox" id="only"> show only figures that failed</label></p>'
        )
    return "\n".join(lines)


def _navigation(outcomes: Sequence[Outcome], errata: Mapping[str, str]) -> str:
    lines = ['<p><a href="#content">Reproduction report</a></p>']
    for paper, own in by_paper(outcomes).items():
        lines.append(f'<p class="paper"><a href="#{_id(paper)}">{escape(paper)}</a></p><ul>')
        lines += [
            f'<li class="{_tone(outcome)}"><a href="#{_id(paper, outcome.figure)}">{escape(outcome.figure)}</a>'
            f"{_verdict(outcome)}</li>"
            for outcome in own
        ]
        if errata[paper].strip():
            lines.append(f'<li><a href="#{_id(paper, "errata")}">errata</a></li>')
        lines.append("</ul>")
    lines.append('<p><a href="#environment">Environment</a></p>')
    return "\n".join(lines)


def _verdict(outcome: Outcome) -> str:
    """In words and signs, not in colour alone."""
    if outcome.error is not None:
        return '<span class="bad">✗ raised</span>'
    if outcome.failed:
        return f'<span class="bad">✗ {outcome.failed} of {len(outcome.claims)} failed</span>'
    return f"<span>✓ {outcome.passed}</span>"


def _index(outcomes: Sequence[Outcome]) -> str:
    """A row for each paper; folded away below it, one for each figure."""
    if not outcomes:
        return ""
    whole = [
        _row(f'<a href="#{_id(paper)}">{escape(papers.title(paper))}</a>', own, {"figures": len(own)})
        for paper, own in by_paper(outcomes).items()
    ]
    single = [
        _row(f'<a href="#{_id(o.paper, o.figure)}">{escape(o.paper)} {escape(o.figure)}</a>', [o]) for o in outcomes
    ]
    counted = ["passed", "failed", "raised", "time", "CPU time"]
    return (
        f'<table class="index stacked">{_head(["paper"], ["figures", *counted])}<tbody>{"".join(whole)}</tbody></table>'
        f'<details><summary>All figures</summary><table class="index stacked">{_head(["figure"], counted)}'
        f"<tbody>{''.join(single)}</tbody></table></details>"
    )


def _row(name: str, outcomes: Sequence[Outcome], more: Mapping[str, object] | None = None) -> str:
    found = counts(outcomes)
    values: dict[str, object] = {
        **(more or {}),
        "passed": found["passed"],
        "failed": found["failed"],
        "raised": found["errors"],
        "time": duration(sum(outcome.seconds for outcome in outcomes)),
        "CPU time": duration(sum(outcome.cpu_seconds for outcome in outcomes)),
    }
    tone = "holds" if all(outcome.holds for outcome in outcomes) else "failed"
    return f'<tr class="{tone}"><td class="name" data-label="">{name}</td>{_numbers(values)}</tr>'


def _paper(paper: str, outcomes: Sequence[Outcome], folder: Path, errata: str) -> str:
    parts = [f'<section id="{_id(paper)}"><h2>{escape(papers.title(paper))}</h2>']
    parts.append(f'<p class="quiet"><code>{escape(paper)}</code> · {sentence(outcomes)}</p>')
    parts += [_figure(outcome, folder) for outcome in outcomes]
    if errata.strip():
        table = html_of(errata).replace("<table>", '<table class="stacked">')
        parts.append(f'<article class="errata"><h3 id="{_id(paper, "errata")}">Errata</h3>{table}</article>')
    return "\n".join([*parts, "</section>"])


def _figure(outcome: Outcome, folder: Path) -> str:
    about = f"{duration(outcome.seconds)} (CPU time {duration(outcome.cpu_seconds)})"
    about += f", kept from {outcome.finished}" if outcome.reused else ""
    about += f", datasets kept from {outcome.data_from}" if outcome.data_from and not outcome.reused else ""
    head = (
        f'<article id="{_id(outcome.paper, outcome.figure)}" class="{_tone(outcome)}"><h3>{escape(outcome.title)}</h3>'
        f'<p class="quiet"><code>{escape(outcome.figure)}</code> · {_verdict(outcome)} · {escape(about)}</p>'
    )
    if outcome.error is not None:
        stage = "Claims or picture raised; the datasets are kept:" if outcome.files else "The computation raised:"
        return f"{head}<p>{stage}</p><pre>{escape(outcome.error)}</pre></article>"
    picture = (folder / outcome.picture).read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    text = escape(f"{outcome.title} The claims of this figure are in the table with it.")
    data = base64.b64encode(picture).decode("ascii")
    return (
        f'{head}<div class="beside{" wide" if width > _WIDE * height else ""}"><figure>'
        f'<img alt="{text}" width="{width}" height="{height}" src="data:image/png;base64,{data}"></figure>'
        f"<div>{_claims(outcome)}</div></div></article>"
    )


def _claims(outcome: Outcome) -> str:
    rows = []
    for claim in outcome.claims:
        printed = number(claim["printed"])
        kind = "number" if isinstance(claim["printed"], int | float) else "words"
        tone, verdict = ("good", "✓ pass") if claim["passed"] else ("bad", "✗ fail")
        allowed, share = tolerance(claim)
        rows.append(
            f'<tr class="{"" if claim["passed"] else "failed"}"><td class="name" data-label="claim">'
            f"{escape(claim['name'])}<small>{escape(claim['because'])}</small></td>"
            + _numbers({"measured": number(claim["measured"]), "expected": relation(claim)})
            + f'<td class="number" data-label="tolerance">{escape(allowed)}<small>{escape(share)}</small></td>'
            + f'<td class="{kind}" data-label="printed">{escape(printed)}</td>'
            + f'<td class="{tone}" data-label="verdict">{verdict}</td></tr>'
        )
    head = _head(["claim"], ["measured", "expected", "tolerance", "printed"], ["verdict"])
    return f'<table class="stacked">{head}<tbody>{"".join(rows)}</tbody></table>'


def _environment(environment: Mapping[str, str]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(str(value))}</td></tr>'
        for key, value in environment.items()
    )
    return f'<table class="environment">{rows}</table>'


def _head(words: Sequence[str], numbers: Sequence[str], more: Sequence[str] = ()) -> str:
    cells = [f'<th scope="col">{word}</th>' for word in words]
    cells += [f'<th scope="col" class="number">{word}</th>' for word in numbers]
    cells += [f'<th scope="col">{word}</th>' for word in more]
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _numbers(values: Mapping[str, object]) -> str:
    return "".join(f'<td class="number" data-label="{key}">{escape(str(value))}</td>' for key, value in values.items())


def _tone(outcome: Outcome) -> str:
    return "holds" if outcome.holds else "fails"


def _id(*names: str) -> str:
    return escape("--".join(names))
