"""Settings of the page that several test files change."""

import functools

from solvable import models
from solvable.settings import Setting

NAMES = list(models.names())
# Models whose theory compiles in well under a second: enough to see that numbers agree to the last bit.
QUICK = {
    "scalar-network": {"target": "1.3", "initial_first": "0.4,-0.25", "initial_second": "0.3,0.2", "times": "0:8:9"},
    "diagonal-network": {"variances": "2,0.3,0.1", "times": "1:50:6log"},
}


def changed(model: str, texts: dict[str, str]) -> Setting:
    return functools.reduce(lambda setting, item: setting.change(*item), texts.items(), Setting(model))
