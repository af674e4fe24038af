"""Benchmarks: each engine beside the obvious alternative, in the same run."""
