"""A setting: a model by name and the texts of its controls. Everything on a page follows from one or two of them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from solvable import models
from solvable.explorer.fields import Field, Role, fields_of, nearest_key
from solvable.explorer.scales import LAST_TIME
from solvable.model import Model
from solvable.timegrid import check_times, whole_steps


class FieldError(ValueError):
    """What is wrong with the text of one control."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclasses.dataclass(frozen=True)
class Setting:
    """Texts that differ from those a page starts with, by key; each has been read by its field."""

    model: str
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Field]:
        return fields_of(self.model)

    def text(self, key: str) -> str:
        return self.texts.get(key, self.fields[key].start)

    def all_texts(self) -> dict[str, str]:
        return {key: self.text(key) for key in self.fields}

    def change(self, key: str, text: str) -> "Setting":
        """The same with another text, or a FieldError."""
        if key not in self.fields:
            raise FieldError(key, f"{self.model} has no {key[:40]!r}{nearest_key(self.model, key[:40])}")
        field = self.fields[key]
        try:
            text = field.tidy(text)
        except ValueError as error:
            raise FieldError(key, str(error)) from error
        texts = {**self.texts, key: text}
        if text == field.start:
            del texts[key]
        return Setting(self.model, texts)

    def value(self, key: str) -> Any:
        return self.fields[key].parse(self.text(key))

    def values(self, role: Role) -> dict[str, Any]:
        """Values by the names the library has for them."""
        return {field.name: self.value(key) for key, field in self.fields.items() if field.role == role}

    def build(self) -> Model:
        """The model; fields that do not go together are a FieldError at the first field that its words name."""
        try:
            return models.get(self.model)(**self.values("parameter"))
        except ValueError as error:
            raise FieldError(self._blamed(str(error)), str(error)) from error

    def _blamed(self, message: str) -> str:
        words = message.replace("[", " ").replace(",", " ").replace(":", " ").split()
        named = [word for word in words if word in self.fields]
        return named[0] if named else ""

    def theory_times(self) -> np.ndarray:
        """As the command line has them: whole steps where the theory counts steps."""
        model, options = self.build(), self.values("theory")
        if any(options.get(name) in whole for name, whole in model.whole_step_options.items() if name in options):
            return whole_steps(self._times(), model.time_step)
        return self._times()

    def training_times(self) -> np.ndarray:
        model = self.build()
        return whole_steps(self._times(), model.time_step) if model.simulates_whole_steps else self._times()

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
        """Whether theory takes seconds: mean-field theory of finite data, features or batches."""
        if self.model == "committee":
            return self.text("solver") != "online" and self.text("samples_per_dimension") != "inf"
        return self.model == "feature-scaling" and (
            any(self.text(key) != "inf" for key in ("features", "batch")) or self.text("samples") != ""
        )

    def values_differ(self, other: "Setting") -> bool:
        """Whether the two mean different systems, whatever their options."""
        keys = [key for key, field in self.fields.items() if field.role == "parameter"]
        return any(self.text(key) != other.text(key) for key in keys)

    def check(self) -> None:
        """Everything that can be refused before any work: a FieldError names the control."""
        self.build()
        self.theory_times()
        self.training_times()


def theory_of(setting: Setting) -> Any:
    """What ``predict`` says at this setting."""
    return setting.build().predict(setting.theory_times(), **setting.values("theory"))


def options_like_simulation(setting: Setting) -> dict[str, Any]:
    """Options of theory that describe what is simulated, as ``solvable compare`` has them: what both know is shared."""
    theory, training = setting.values("theory"), setting.values("training")
    shared = {name: value for name, value in training.items() if name in theory}
    return {**theory, **shared, **models.get(setting.model).predict_like_simulation}
