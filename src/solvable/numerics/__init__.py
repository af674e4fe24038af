"""Numerical methods that two or more models share. Their callers compute in float64: see :mod:`solvable.precision`."""
