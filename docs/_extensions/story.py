"""Sphinx extension that embeds a shipped story: a directive named ``story`` whose argument is the name of a story.

The page of the story is written once into the built site. It contains its script and its data, so that reading it needs
no network and no server.
"""

from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from solvable import stories
from solvable.stories.pages import story_html

FOLDER = "_stories"


class StoryFrame(nodes.General, nodes.Element):
    """The place of a story in a document."""


class StoryDirective(SphinxDirective):
    """``{story} NAME`` shows a story; ``:height:`` is that of the frame in pixels."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"height": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in stories.names():
            raise self.error(f"there is no story {name!r}; stories are {', '.join(stories.names())}")
        scene = stories.shipped(name)
        if scene is None:
            raise self.error(f"the story of {name} has changed: run python -m solvable.stories build {name}")
        return [StoryFrame(story=name, question=scene["question"], height=self.options.get("height", 900))]


def visit_html(translator: Any, node: StoryFrame) -> None:
    up = "../" * translator.builder.current_docname.count("/")
    address, question = f"{up}{FOLDER}/{node['story']}.html", escape(node["question"])
    frame = f'<iframe src="{address}" title="Story: {question}" height="{node["height"]}" loading="lazy"></iframe>'
    link = f'<a href="{address}" target="_blank">Open the story on a page of its own</a>'
    translator.body.append(f'<figure class="story">{frame}<figcaption>{question} {link}</figcaption></figure>\n')
    raise nodes.SkipNode


def visit_text(translator: Any, node: StoryFrame) -> None:
    raise nodes.SkipNode


def write_stories(app: Any, error: Exception | None) -> None:
    """Write the pages of all shipped stories into the site that was built."""
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for name in stories.names():
        if scene := stories.shipped(name):
            (folder / f"{name}.html").write_text(story_html(scene), "utf-8")


def setup(app: Any) -> dict[str, Any]:
    app.add_node(StoryFrame, html=(visit_html, None), text=(visit_text, None))
    app.add_directive("story", StoryDirective)
    app.connect("build-finished", write_stories)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
