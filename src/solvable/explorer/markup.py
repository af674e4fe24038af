"""Text and numbers as HTML. Everything that comes from a visitor or a model is escaped."""

from html import escape
from typing import Any

from solvable.explorer.summaries import Card
from solvable.plotting import series as curves
from solvable.settings import Setting

# Settings that differ in more controls are called A and B.
_MOST_DIFFERENCES = 3
_SCORED = ("loss", "accuracy", "strength", "output", "alignment")


def card_list(mine: list[Card], others: list[Card]) -> str:
    """The cards of setting A, with the numbers of B under them."""
    other = {card.name: card for card in others}
    made = []
    for card in mine:
        why = f'<dd class="why" title="{escape(card.why)}">{escape(card.why)}</dd>' if card.why else ""
        more = f'<dd class="b">B {escape(other[card.name].text)}</dd>' if card.name in other else ""
        made.append(
            f'<div class="card"><dt>{escape(card.label)}</dt><dd class="value" data-card="{card.name}">'
            f"{escape(card.text)} <small>{escape(card.unit)}</small></dd>{why}{more}</div>"
        )
    return f'<dl class="cards">{"".join(made)}</dl>'


def notice(notes: list[str]) -> str:
    return "".join(f'<p class="notice" role="alert">{escape(note)}</p>' for note in notes)


def setting_words(setting: Setting) -> str:
    """A setting in one line: the model, and every control that was changed."""
    told = [f"{setting.fields[key].symbol or key} = {text}" for key, text in setting.texts.items()]
    return ", ".join([setting.model, *told])


def told_apart(a: Setting, b: Setting) -> tuple[str, str]:
    """Words for two settings, such as "λ = 0.9" and "λ = 1.5": what differs between them."""
    fields = {key: field for key, field in a.fields.items() if field.role in ("parameter", "training", "theory")}
    differ = [(key, field.symbol or key) for key, field in fields.items() if a.text(key) != b.text(key)]
    if not 0 < len(differ) <= _MOST_DIFFERENCES or any(len(a.text(key) + b.text(key)) > 40 for key, _ in differ):
        return "A", "B"
    first, second = (", ".join(f"{name} = {_said(one.text(key))}" for key, name in differ) for one in (a, b))
    return first, second


def _said(text: str) -> str:
    return {"": "none", "inf": "∞"}.get(text, text)


def queue_words(before: int) -> str:
    """The place of a calculation in the queue of a busy server; empty where it is its turn."""
    if before <= 0:
        return ""
    return f"waiting in the queue, {before} slow {'calculation' if before == 1 else 'calculations'} before this one"


def run_words(setting: Setting, result: dict[str, Any]) -> str:
    """A status line: how many seeds have run, for which setting, and the largest z-score against theory."""
    words = f"{result['seeds']} of {result['of']} seeds of {setting_words(setting)}"
    found = [score for name in _SCORED if (score := curves.largest_score(result["comparison"], name))]
    if not found:
        return words
    return f"{words}; largest z-score {max(score for score, _ in found):.2f} among {sum(count for _, count in found)}"
