"""Stories: what each model is there to teach, shown by one player on the page, in exports, docs and notebooks.

A model states its story beside its physics (:mod:`solvable.story`); this package computes what it shows.
"""

from solvable.stories.catalogue import model_of, names
from solvable.stories.export import export
from solvable.stories.pages import StoryPage, show
from solvable.stories.scene import build
from solvable.stories.shipped import scene, shipped

__all__ = ["StoryPage", "build", "export", "model_of", "names", "scene", "shipped", "show"]
