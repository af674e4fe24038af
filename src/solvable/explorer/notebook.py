"""The page inside a notebook: the parts of a view in a plain Panel layout."""

import asyncio
from collections.abc import Callable
from typing import Any

from solvable.explorer.address import read_state
from solvable.explorer.server import check_installed
from solvable.explorer.workers import Workers

_workers: Workers | None = None


def notebook_page(model: str | None) -> Any:
    """A Panel layout with controls on the left and tabs on the right."""
    check_installed()
    import panel as pn

    from solvable import models
    from solvable.explorer.view import View

    if model is not None:
        models.get(model)
    pn.extension(inline=True)
    global _workers
    if _workers is None:
        _workers = Workers()
    state, errors = read_state([], model)
    view = View(state, errors, _workers, _later(), push=pn.io.push_notebook)
    part = view.curves
    curves = (part.views, part.upper, part.upper_legend, part.lower, part.lower_legend, part.sentence)
    network = view.diagnosis
    diagnosis = (network.upload, network.sample, network.runner, network.report)
    law = view.inference
    inference = (law.upload, law.views, law.sample, law.runner, law.report)
    tabs = pn.Tabs(
        ("Curves", pn.Column(*curves)),
        ("Phase diagram", pn.Column(view.plane.views, view.plane.runner, view.plane.words, view.plane.pane)),
        ("Code and files", pn.Column(view.python, view.command, view.downloads.row)),
        ("Diagnose a network", pn.Column(*diagnosis)),
        ("Infer a law", pn.Column(*inference)),
    )
    names = ("curves", "phase", "code", "diagnose", "infer")
    tabs.param.watch(lambda event: view.open_tab(names[event.new]), "active")
    controls = pn.Column(view.form, view.compare, view.form_b, width=320)
    shown = pn.Column(view.notice, view.cards, view.runner, view.progress, tabs, sizing_mode="stretch_width")
    layout = pn.Row(controls, shown, sizing_mode="stretch_width")
    view.begin()
    return layout


def _later() -> Callable[[Callable[[], None]], None]:
    """Schedule functions on the event loop of the notebook; without one, call them immediately."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return lambda action: action()

    def later(action: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(action)

    return later
