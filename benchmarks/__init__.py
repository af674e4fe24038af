"""Benchmarks: each method is compared with the obvious alternative in the same run."""
