"""Docstrings of models: every argument has an entry, in the order of the signature, from one place that states it."""

from typing import Annotated, Any, ClassVar

import pytest

import solvable
from solvable.checks import rules
from solvable.coverage import Covers
from solvable.docstrings import describe_arguments, with_parameters
from solvable.model import Key, Model, Seeds, parameter
from solvable.training import GradientDescent, GradientFlow, Training


def entries(docstring):
    """Names and texts of a ``Parameters`` section, in order."""
    section = docstring.split("Parameters\n----------\n")[1].split("\n\n")[0]
    found, name = {}, ""
    for line in section.split("\n"):
        if line.startswith("    "):
            found[name] = f"{found[name]} {line.strip()}".strip()
        else:
            name = line
            found[name] = ""
    return found


def test_missing_entries_are_added_in_order_and_written_ones_kept():
    text = """Do something.

    Parameters
    ----------
    second
        Described here,
        on two lines.

    Returns
    -------
    Dataset
        What came out.
    """
    completed = with_parameters(text, {"first": "the first one", "second": "another text", "third": "the last."})
    found = entries(completed)
    assert list(found) == ["first", "second", "third"]
    assert found["first"] == "The first one."
    assert found["second"] == "Described here, on two lines."
    assert found["third"] == "The last."
    assert completed.endswith("Returns\n-------\nDataset\n    What came out.")


def test_a_section_is_made_before_the_examples():
    completed = with_parameters("Summary.\n\nMore of it.\n\n>>> 1 + 1\n2", {"times": "increasing times"})
    assert completed == (
        "Summary.\n\nMore of it.\n\nParameters\n----------\ntimes\n    Increasing times.\n\n>>> 1 + 1\n2"
    )


def test_one_entry_for_several_arguments_counts_for_all_of_them():
    text = "Do it.\n\nParameters\n----------\ntimes, training\n    As in :meth:`predict`.\n**axes\n    Values."
    completed = with_parameters(text, {"times": "a", "training": "b", "key": "random seed", "axes": ""})
    assert list(entries(completed)) == ["times, training", "key", "**axes"]
    assert with_parameters("No arguments.", {}) == "No arguments."


def test_texts_come_from_annotations_first():
    def method(self, times, seeds: Annotated[int, "number of runs"] = 1, unknown=None):
        """Run."""

    describe_arguments(method, {"times": "increasing times", "seeds": "never used"})
    assert entries(method.__doc__) == {"times": "Increasing times.", "seeds": "Number of runs."}


class _Weight(Model):
    """One weight."""

    name: ClassVar[str] = "weight"
    default_training: ClassVar[Training] = GradientDescent(0.5)
    theory_covers: ClassVar[tuple[Covers, ...]] = (Covers(GradientFlow), Covers(GradientDescent, options=("momentum",)))

    width: int = parameter("number of units", rules.count, symbol="n", default=3)

    def predict(self, times: Any, training: Training | None = None) -> Any:
        """Predict."""

    def simulate(self, times: Any, training: Training | None = None, *, seeds: Seeds = 1, key: Key = 0) -> Any:
        """Simulate."""


def test_the_class_says_what_trainings_are_covered():
    predict, simulate = entries(_Weight.predict.__doc__), entries(_Weight.simulate.__doc__)
    assert list(predict) == ["times", "training"]
    assert predict["training"] == (
        "How the model is trained: GradientFlow; GradientDescent with momentum; by default "
        "GradientDescent(learning_rate=0.5)."
    )
    assert "trained: GradientFlow; by default" in simulate["training"]
    assert simulate["seeds"] == "Number of independent runs."
    assert entries(_Weight.__doc__) == {"width": "Number of units."}


@pytest.mark.parametrize("name", solvable.models.names())
def test_classes_of_models_describe_their_parameters(name):
    model = solvable.models.get(name)
    assert list(entries(model.__doc__)) == list(model().parameters())


def test_both_transfers_describe_and_check_their_shared_arguments_alike():
    """Networks in JAX and in PyTorch: one text for each argument, and one line for each bad value."""
    torch_side = pytest.importorskip("solvable.torch").transfer
    from solvable.diagnostics.transfer_arguments import ARGUMENTS
    from solvable.networks import transfer

    ours, theirs = (entries(one.__doc__) for one in (transfer, torch_side))
    for name, text in ARGUMENTS.items():
        assert ours[name] == theirs[name]
        assert ours[name].lower().startswith(text.lower())
    good = {"widths": [4, 8], "learning_rates": [0.1, 0.2, 0.4], "steps": 5, "seeds": 4}
    bad = {"widths": [4], "learning_rates": [0.1, -1, 2], "steps": 0, "seeds": 3, "batch_size": 0, "key": -1}
    for name, value in {**bad, "window": 0, "coordinate_steps": 6, "diverged_above": 0.5}.items():
        errors = []
        for one in (transfer, torch_side):
            with pytest.raises(ValueError, match=r".") as caught:
                one(None, None, **{**good, name: value})
            errors.append(str(caught.value))
        assert errors[0] == errors[1]
        assert "\n" not in errors[0]
