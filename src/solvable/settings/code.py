"""A setting as a Python script and as command lines that give exactly the numbers on the page."""

import json
import shlex
from typing import Any

import numpy as np

import solvable
from solvable import models
from solvable.settings.fields import Field, write
from solvable.settings.setting import Setting, theory_options


def python(setting: Setting) -> str:
    """A script that computes ``theory``, ``simulation`` and ``comparison``."""
    cls = models.get(setting.model)
    fields = setting.fields.values()
    model = _call(cls.__name__, [_argument(field, setting) for field in fields if _said(field, setting, "parameter")])
    theory = [_argument(field, setting) for field in fields if _said(field, setting, "theory")]
    simulation = [_argument(field, setting) for field in fields if _said(field, setting, "simulation")]
    training = setting.training()
    said = [] if training == cls.default_training else ["training"]
    times = _array(setting.text("times"))
    rounded = not np.array_equal(setting.times(), setting.value("times"))
    lines = ["import numpy as np", "import solvable"]
    if rounded:
        lines.append("from solvable.timegrid import whole_steps")
    if "parse_schedule(" in repr(training):
        lines.append("from solvable.training_choice import parse_schedule")
    if cls.__name__ not in solvable.__all__:
        lines.append(f"from {cls.__module__} import {cls.__name__}")
    else:
        model = f"solvable.{model}"
    lines += ["", f"model = {model}"]
    if said:
        lines.append(f"training = solvable.{training!r}")
    lines.append(f"times = whole_steps({times})" if rounded else f"times = {times}")
    lines.append("theory = " + _call("model.predict", ["times", *said, *theory]))
    lines += ["", "# The finite-size system, once for each seed, and how well theory describes it:"]
    lines.append("simulation = " + _call("model.simulate", ["times", *said, *simulation]))
    options = theory_options(setting)
    shared = [f"{name}={value!r}" for name, value in options.items() if value != _default(setting, name)]
    expected = "theory"
    if shared != theory:
        expected = "expected"
        lines.append(f"expected = {_call('model.predict', ['times', *said, *shared])}")
    lines.append(f"comparison = solvable.compare({expected}, simulation)")
    return "\n".join(lines) + "\n"


def notebook(setting: Setting) -> str:
    """A Jupyter notebook (nbformat 4.5) with the script in cells: theory, its picture, and the simulation beside it."""
    theory, _, simulation = python(setting).partition("\n# The finite-size system")
    shown = "solvable.plot(theory)"
    cells = [
        _cell("markdown", f"# {setting.model}\n\nThis notebook gives exactly the numbers of the page.", 1),
        _cell("code", f"{theory.strip()}\n\n{shown}", 2),
        _cell("code", f"# The finite-size system{simulation.rstrip()}\n\nsolvable.plot(theory, simulation)", 3),
    ]
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _cell(kind: str, text: str, number: int) -> dict[str, Any]:
    made = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
    return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def command(setting: Setting, verb: str = "predict") -> str:
    """The command line for a verb: predict, simulate or compare."""
    roles = {"predict": ("theory",), "simulate": ("simulation",), "compare": ("simulation", "theory")}[verb]
    words = ["solvable", verb, setting.model]
    seen: set[str] = set()
    # Where theory and simulation know the same option, one flag serves both: that of the simulation.
    for field in sorted(setting.fields.values(), key=lambda field: field.role == "theory"):
        if field.role not in ("parameter", "training", "times", *roles) or field.name in seen:
            continue
        seen.add(field.name)
        said = field.key in setting.texts if field.role == "training" else _said(field, setting, field.role)
        if field.role == "times" or said:
            # An empty control of a parameter stands for infinitely many, which the command line writes out.
            text = setting.text(field.key) or ("inf" if field.role == "parameter" else "")
            flag = f"--{field.name.replace('_', '-')}"
            if isinstance(field.default, bool):
                words.append(flag if text == "true" else f"--no-{field.name.replace('_', '-')}")
            else:
                words += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return shlex.join(words)


def _said(field: Field, setting: Setting, role: str) -> bool:
    """Whether the field has this role and differs from the default of the library."""
    if field.role != role:
        return False
    value = setting.value(field.key)
    if isinstance(value, np.ndarray):
        try:
            return not np.array_equal(value, np.asarray(field.default, float))
        except (TypeError, ValueError):
            return True
    if field.rule.function:
        return field.known(value) != field.default  # type: ignore[misc]
    return value != field.default


def _argument(field: Field, setting: Setting) -> str:
    value = setting.value(field.key)
    if not isinstance(value, np.ndarray):
        return f"{field.name}={_plain(value)}"
    text = setting.text(field.key)
    return f"{field.name}={_matrix(text) if value.ndim == 2 else _array(text)}"


def _default(setting: Setting, name: str) -> Any:
    return next(field.default for field in setting.fields.values() if field.name == name and field.role == "theory")


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return 'float("inf")' if value == float("inf") else write(value)
    return repr(value)


def _array(text: str) -> str:
    """A typed list as NumPy code that gives exactly the same values."""
    if ":" not in text:
        return "[" + ", ".join(write(float(part)) for part in text.split(",")) + "]"
    first, last, count = text.split(":")
    maker = "geomspace" if count.endswith("log") else "linspace"
    return f"np.{maker}({float(first)!r}, {float(last)!r}, {int(count.removesuffix('log'))})"


def _matrix(text: str) -> str:
    return "[" + ", ".join(_array(row) for row in text.split(";")) + "]"


def _call(name: str, arguments: list[str]) -> str:
    line = f"{name}({', '.join(arguments)})"
    if len(line) < 96:
        return line
    return f"{name}(\n    " + ",\n    ".join(arguments) + ",\n)"
