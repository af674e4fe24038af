"""Settings as texts: the controls of every model, a setting of them, and the code that gives the same numbers.

What the page, the stories and the addresses share. Nothing here draws, and nothing knows a model by name.
"""

from solvable.settings.fields import Field, fields_of
from solvable.settings.setting import FieldError, Setting, theory_of, theory_options

__all__ = ["Field", "FieldError", "Setting", "fields_of", "theory_of", "theory_options"]
