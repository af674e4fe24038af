"""The stories of all models by their names, and the settings of their steps."""

from solvable import models
from solvable.settings import Setting
from solvable.story import Step, Story


def _told() -> dict[str, tuple[str, Story]]:
    """The models and stories by the names of the stories."""
    found = [(model, story) for model in models.names() for story in models.get(model).controls.stories]
    return {f"{model}-{story.name}" if story.name else model: (model, story) for model, story in found}


def story_of(name: str) -> Story:
    """The story of a name; a ValueError lists the names."""
    return model_and_story(name)[1]


def model_of(name: str) -> str:
    """The model of a story; a ValueError lists the names of stories."""
    return model_and_story(name)[0]


def model_and_story(name: str) -> tuple[str, Story]:
    """The model and the story of a name; a ValueError lists the names."""
    told = _told()
    if name not in told:
        models.get(name)
        raise ValueError(f"the model {name!r} has no story; stories are {', '.join(told)}")
    return told[name]


def names(model: str = "") -> list[str]:
    """The names of all stories, in the order in which their models are registered.

    The first story of a model is called like the model, further ones ``MODEL-NAME``.

    Parameters
    ----------
    model
        Name of a model, if only its stories are wanted.
    """
    return [name for name, (of, _) in _told().items() if model in ("", of)]


def step_setting(model: str, step: Step) -> Setting:
    """The setting of a step, which states all texts that differ from the start of the page."""
    setting = Setting(model)
    for key, text in step.settings.items():
        setting = setting.change(key, text)
    setting.check()
    return setting
