"""Reports as tables, of text and in notebooks."""

from solvable.display import table


class Lines:
    """What gives its lines, each a name and words, has a ``summary()`` and a table in notebooks."""

    def _lines(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    def summary(self) -> str:
        """The report as a table of text."""
        return "\n".join(f"{name:<40} {value}" for name, value in self._lines())

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        return table(type(self).__name__, (), self._lines())
