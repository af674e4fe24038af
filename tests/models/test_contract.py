"""The contract test: every registered model passes it, the example of the docs as well, and broken models do not."""

import sys
from typing import Any, ClassVar

import pytest
import xarray as xr
from paths import EXAMPLE

import solvable
from solvable import models
from solvable.checks import rules
from solvable.controls import Controls, Slider, Summary
from solvable.model import parameter
from solvable.models import ContractError, check_model
from solvable.story import Explanation, Step, Story, SystemView

sys.path.insert(0, str(EXAMPLE))
from single_weight import SingleWeight


@pytest.mark.parametrize("name", models.names())
def test_every_registered_model_keeps_the_contract(name: str) -> None:
    check_model(name)


def test_the_example_of_the_docs_keeps_the_contract() -> None:
    check_model(SingleWeight)
    check_model(SingleWeight(samples=3))


class _Undocumented(SingleWeight):
    rate: float = 1.0


class _OldWords(SingleWeight):
    hidden: int = parameter("hidden units", rules.count, symbol="h", default=3)


class _OptionsOfItsOwn(SingleWeight):
    def predict(self, times: Any, training: Any = None, *, descent: str = "flow") -> Any:
        """Predict.

        Parameters
        ----------
        times
            Times.
        training
            Training.
        """
        return SingleWeight.predict(self, times, training)


class _CountsFromZero(SingleWeight):
    def predict(self, times: Any, training: Any = None) -> Any:
        """Predict.

        Parameters
        ----------
        times, training
            As always.
        """
        found = SingleWeight.predict(self, times, training)
        return found.assign_coords(mode=("mode", [0, 1], {"long_name": "mode", "units": "1"}))


class _TakesAnything(SingleWeight):
    def predict(self, times: Any, training: Any = None) -> Any:
        """Predict.

        Parameters
        ----------
        times, training
            As always.
        """
        return SingleWeight.predict(self, [1.0, 2.0])


class _Forgetful(SingleWeight):
    def predict(self, times: Any, training: Any = None) -> Any:
        """Predict.

        Parameters
        ----------
        times, training
            As always.
        """
        found = SingleWeight.predict(self, times, training)
        del found.attrs["training"], found.test_loss.attrs["units"]
        return found


class _WrongStory(SingleWeight):
    controls: ClassVar[Controls] = Controls(
        stories=(
            Story(
                question="Why?",
                steps=(Step("Long", "One. Two. Three.", {"nothing": "1"}), Step("Your turn", "Now you.")),
                challenge="Find it.",
                answer="There.",
                sliders=("something",),
                variables=(("test_loss", "beauty"),),
            ),
        ),
        explain=lambda model, training, curves: Explanation("It takes nan steps."),
        system=lambda model, training, times: SystemView(
            "bars", "Weights", "Each bar is a weight.", xr.Dataset({"size": ("index", [1.0])})
        ),
    )


class _WrongSlider(SingleWeight):
    controls: ClassVar[Controls] = Controls(
        sliders={"samples": Slider(-1, 5), "nothing": Slider(0, 1)},
        summaries=(Summary("broken", "a broken one", lambda model, training: 1 / 0),),
    )


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        (_Undocumented, ["rate is not declared with parameter"]),
        (_OldWords, ["the field hidden should be width"]),
        (_OptionsOfItsOwn, ["descent of predict should be the training", "does not describe descent"]),
        (_CountsFromZero, ["mode is not counted in integers from 1, but begins"]),
        (_TakesAnything, ["accepts the training GradientDescent", "accepts times = []"]),
        (_Forgetful, ["attribute 'training' is missing", "test_loss has no units"]),
        (
            _WrongStory,
            [
                "has 2 steps, not four to six",
                "'Long' has more than two sentences",
                "sets 'nothing', which is neither",
                "'Long' asks no question",
                "hands over the sliders ('something',)",
                "shows 'beauty', which is not a curve",
                "holds a NaN",
                "of kind 'bars', has no 'height'",
                "does not have the times",
            ],
        ),
        (
            _WrongSlider,
            ["slider of samples has the value -1", "slider for 'nothing'", "broken raises ZeroDivision"],
        ),
    ],
)
def test_broken_models_are_caught(kind: type[solvable.Model], messages: list[str]) -> None:
    with pytest.raises(ContractError) as caught:
        check_model(kind)
    for message in messages:
        assert message in str(caught.value)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ContractError, match="a model is an instance of solvable.Model"):
        check_model(3)
    with pytest.raises(ValueError, match="no model is named"):
        check_model("no-such-model")
