"""``python -m benchmarks [name ...]`` runs the benchmarks and fails if a ratio that was promised is missed.

A benchmark is a module here with a function ``run() -> list[Result]``; other modules help them.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import importlib
import pkgutil
import sys

import jax

import benchmarks

# They call numerics below the public functions, which switch float64 on for themselves.
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
