"""The page of one visitor: the HTML template, filled with the parts of a view."""

from typing import Any
from urllib.parse import urlencode

import panel as pn
from bokeh.models import CustomJS

from solvable import models
from solvable.explorer.address import THEMES, State
from solvable.explorer.components import asset
from solvable.explorer.presets import presets_of
from solvable.explorer.view import View
from solvable.stories.catalogue import names, story_of

_TABS = {
    "curves": "Curves",
    "phase": "Phase diagram",
    "code": "Code and files",
    "diagnose": "Diagnose a network",
    "infer": "Infer a law",
}
_PARTS = "form compare form_b notice cards runner progress actions python command address"
_CURVES = "views upper upper_legend lower lower_legend sentence"


def make_page(view: View) -> Any:
    """The template with all parts and variables."""
    state = view.state
    template = pn.Template(asset("page.html"))
    parts = {part: getattr(view, part) for part in _PARTS.split()}
    parts |= {part: getattr(view.curves, part) for part in _CURVES.split()}
    plane, diagnosis, inference = view.plane, view.diagnosis, view.inference
    parts |= {"downloads": view.downloads.row}
    parts |= {"plane_views": plane.views, "plane_runner": plane.runner, "plane_words": plane.words}
    parts |= {
        "plane_pane": plane.pane,
        "upload": diagnosis.upload,
        "sample": diagnosis.sample,
        "diagnosis_runner": diagnosis.runner,
    }
    parts |= {
        "log_upload": inference.upload,
        "log_views": inference.views,
        "log_sample": inference.sample,
        "inference_runner": inference.runner,
        "inference": inference.report,
    }
    for name, part in {**parts, "diagnosis": diagnosis.report}.items():
        template.add_panel(name, part)
    wrong = any(form.errors for form in (view.form, *view.opened_b()))
    for name, value in {**_variables(state), "wrong": wrong}.items():
        template.add_variable(name, value)
    return template


def warn_when_lost(document: Any) -> None:
    document.js_on_event("connection_lost", CustomJS(code='document.getElementById("lost").hidden = false'))


def _variables(state: State) -> dict[str, Any]:
    other = THEMES[1 - THEMES.index(state.theme)]
    theme = [] if state.theme == THEMES[0] else [("theme", state.theme)]
    links = [
        {
            "name": name,
            "summary": summary,
            "href": "?" + urlencode([("model", name), *theme]),
            "current": name == state.a.model,
        }
        for name, summary in models.names().items()
    ]
    return {
        "page_css": asset("page.css"),
        "page_js": asset("page.js"),
        "html_attrs": f'class="{state.theme}"',
        "app_favicon": "",
        "apple_icon": "",
        "models": links,
        "model_name": state.a.model,
        "model_summary": models.names()[state.a.model],
        "tabs": [{"key": key, "name": name} for key, name in _TABS.items()],
        "open_tab": state.tab,
        "stories": [{"href": f"/story/{name}", "question": story_of(name).question} for name in names(state.a.model)],
        "other_theme": other,
        "theme_href": "?" + urlencode([("model", state.a.model), ("theme", other)]),
        "presets": _grouped(state, theme),
    }


def _grouped(state: State, theme: list[tuple[str, str]]) -> list[dict[str, Any]]:
    papers: dict[str, list[dict[str, str]]] = {}
    for preset in presets_of(state.a.model):
        href = "?" + preset.state().query() + ("&" + urlencode(theme) if theme else "")
        title = f"{preset.paper}, {preset.figure}"
        papers.setdefault(preset.paper, []).append({"href": href, "label": preset.words(), "title": title})
    return [{"name": name, "presets": found} for name, found in papers.items()]
