"""A setting: the name of a model and the texts of its controls. A page shows one setting, or compares two."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from solvable import models
from solvable.model import Model
from solvable.settings.fields import Field, Role, fields_of, nearest_key, write
from solvable.settings.limits import LAST_TIME
from solvable.timegrid import check_times
from solvable.training import Training
from solvable.training_choice import make_training, times_after_change, times_for, usual_times


class FieldError(ValueError):
    """An error in the text of one control, whose key it has."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclasses.dataclass(frozen=True)
class Setting:
    """The texts that differ from those of the initial page, by key; each has been parsed by its field."""

    model: str
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Field]:
        return fields_of(self.model)

    def text(self, key: str) -> str:
        """The text of a control. What was not changed depends on the chosen training: its options, and the times."""
        if key in self.texts:
            return self.texts[key]
        field = self.fields[key]
        if field.role == "times" and key not in models.get(self.model).controls.start:
            return self._usual_times()
        if field.role == "training":
            return self._usual_option(field)
        return field.start

    def _usual_times(self) -> str:
        try:
            return usual_times(models.get(self.model), self.training())
        except ValueError:
            return self.fields["times"].start

    def _usual_option(self, field: Field) -> str:
        try:
            training = self.training()
        except ValueError:
            return write(field.default)
        if field.name == "training":
            return training.name
        value = training.parameters().get(field.name, field.default)
        # A schedule stands beside the rate, which is its peak.
        function = getattr(value, "function", None)
        return write(getattr(function, "peak", field.default) if callable(value) else value)

    def training(self) -> Training:
        """The training that the changed options mean; a FieldError names the control that is wrong."""
        chosen = {
            self.fields[key].name: self.fields[key].parse(text)
            for key, text in self.texts.items()
            if self.fields[key].role == "training"
        }
        try:
            return make_training(models.get(self.model), chosen)
        except ValueError as error:
            raise FieldError(self._blamed(str(error)), str(error)) from error

    def all_texts(self) -> dict[str, str]:
        return {key: self.text(key) for key in self.fields}

    def change(self, key: str, text: str) -> "Setting":
        """The setting with another text for one control; a FieldError if it cannot be parsed."""
        if key not in self.fields:
            raise FieldError(key, f"{self.model} has no {key[:40]!r}{nearest_key(self.model, key[:40])}")
        field = self.fields[key]
        try:
            text = field.tidy(text)
        except ValueError as error:
            raise FieldError(key, str(error)) from error
        rest = Setting(self.model, {other: said for other, said in self.texts.items() if other != key})
        # A text that the control would have anyway is not stored.
        return rest if text == rest.text(key) else Setting(self.model, {**self.texts, key: text})

    def edit(self, key: str, text: str) -> "Setting":
        """As :meth:`change`, for a visitor who edits a control: other controls follow where they must.

        An address, which says everything at once, is read by :meth:`change`.
        """
        if key == "training":
            return self._choose_training(text)
        needy = [name for name in self.texts if self.fields[name].needs[:1] == (key,)]
        dropped = [name for name in needy if not text.startswith(self.fields[name].needs[1])]  # type: ignore[misc]
        if dropped:
            return Setting(self.model, {name: said for name, said in self.texts.items() if name not in dropped}).change(
                key, text
            )
        other = {"batch_size": "batch_fraction", "batch_fraction": "batch_size"}.get(key)
        if other in self.texts and text.strip():
            return Setting(self.model, {name: said for name, said in self.texts.items() if name != other}).change(
                key, text
            )
        return self.change(key, text)

    def _choose_training(self, name: str) -> "Setting":
        """Another kind of training: options that it does not have are left out, SGD gets a batch size.

        Times that were typed are converted, so that the same flow times are shown.
        """
        kept = {
            key: text
            for key, text in self.texts.items()
            if self.fields[key].role != "training" or (key != "training" and name in self.fields[key].trainings)
        }
        changed = Setting(self.model, kept).change("training", name)
        if name == "sgd" and not {"batch_size", "batch_fraction"} & set(kept):
            fraction = self.fields.get("batch_fraction")
            size = fraction if fraction is not None and fraction.start else self.fields["batch_size"]
            changed = Setting(self.model, {**changed.texts, size.key: size.start})
        if "times" not in self.texts:
            return changed
        return changed.change("times", times_after_change(self.texts["times"], self.training(), changed.training()))

    def value(self, key: str) -> Any:
        return self.fields[key].parse(self.text(key))

    def values(self, role: Role) -> dict[str, Any]:
        """The values of all fields with a role, by the names of the library."""
        return {field.name: self.value(key) for key, field in self.fields.items() if field.role == role}

    def build(self) -> Model:
        """The model. Incompatible parameters are a FieldError at the first field that the message names."""
        try:
            return models.get(self.model)(**self.values("parameter"))
        except ValueError as error:
            raise FieldError(self._blamed(str(error)), str(error)) from error

    def _blamed(self, message: str) -> str:
        words = message.replace("[", " ").replace(",", " ").replace(":", " ").split()
        named = [word for word in words if word in self.fields]
        return named[0] if named else ""

    def times(self) -> np.ndarray:
        """The times, rounded to whole steps where the training counts steps, as on the command line."""
        return times_for(self._times(), self.training())

    def _times(self) -> np.ndarray:
        try:
            times = check_times(self.value("times"))
        except ValueError as error:
            raise FieldError("times", str(error)) from error
        if times[-1] > LAST_TIME:
            raise FieldError("times", f"times end at {times[-1]:g}, a page goes to {LAST_TIME:g}")
        return times

    @property
    def is_slow(self) -> bool:
        """Whether theory takes seconds, as the model states."""
        try:
            return bool(models.get(self.model).controls.slow(self.build(), self.training()))
        except ValueError:
            return False

    @property
    def has_quick_look(self) -> bool:
        """Whether the model states options for a quick look, and none of them was chosen by the visitor."""
        quick = models.get(self.model).controls.quick(self.build(), self.training())
        return bool(quick) and not any(self.value(key) is not None for key in quick if key in self.texts)

    @property
    def is_simulation_only(self) -> bool:
        """Whether the training is one that the theory of the model does not cover, but its simulation does."""
        model, training = self.build(), self.training()
        covered = []
        for verb in ("predict", "simulate"):
            try:
                model.check_training(training, verb)
                covered.append(True)
            except ValueError:
                covered.append(False)
        return covered == [False, True]

    def values_differ(self, other: "Setting") -> bool:
        """Whether parameters or training differ; numerical options do not count."""
        keys = [key for key, field in self.fields.items() if field.role in ("parameter", "training")]
        return any(self.text(key) != other.text(key) for key in keys)

    def check(self) -> None:
        """Check everything that can be checked without computing; a FieldError names the control."""
        self.build()
        self.times()


def theory_of(setting: Setting) -> Any:
    """The prediction of theory for a setting."""
    return setting.build().predict(setting.times(), setting.training(), **setting.values("theory"))


def theory_options(setting: Setting) -> dict[str, Any]:
    """Options of theory for a comparison: an option that the simulation also has takes the value given there."""
    theory, simulation = setting.values("theory"), setting.values("simulation")
    return {**theory, **{name: value for name, value in simulation.items() if name in theory}}
