"""``python -m benchmarks [name ...]`` runs the benchmarks and fails if a promised bound is missed.

A benchmark is a module in this folder with a function ``run() -> list[Result]``; the other modules are helpers.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import importlib
import pkgutil
import sys

import jax

import benchmarks

# Benchmarks also call internal functions, which do not switch JAX to float64 themselves.
jax.config.update("jax_enable_x64", True)


def main(chosen: list[str]) -> int:
    names = [info.name for info in pkgutil.iter_modules(benchmarks.__path__) if info.name[0] != "_"]
    names = [name for name in names if not chosen or name in chosen]
    missed = 0
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        if not hasattr(module, "run"):
            continue
        print(f"\n{name}: {(module.__doc__ or '').splitlines()[0]}")
        for result in module.run():
            print(f"  {result}")
            missed += not result.met
    print(f"\n{missed} promises missed" if missed else "\nall promises met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
