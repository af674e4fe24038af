"""``python -m solvable`` is the same as the ``solvable`` command."""

from solvable.cli import main

if __name__ == "__main__":
    main()
