"""``python -m solvable.stories build [STORY ...]`` computes the scenes that are shipped with the package.

``renew`` keeps scenes whose steps are computed as before: that is enough after a model has got another field.
"""

import argparse

from solvable.stories import names
from solvable.stories.scene import build
from solvable.stories.shipped import renew, write


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m solvable.stories", description=__doc__)
    parser.add_argument("action", choices=["build", "renew"], help="compute scenes, or keep unchanged ones")
    parser.add_argument("story", nargs="*", help="names of stories (default: all)")
    parser.add_argument("--nodes", type=int, help="computed settings along each slider (default: chosen by the speed)")
    given = parser.parse_args()
    for name in given.story or names():
        if given.action == "renew":
            renew(name)
            print(f"{name}: all steps are as before", flush=True)
            continue
        scene = build(name, given.nodes)
        path = write(scene)
        errors = scene["errors"]
        print(
            f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {len(scene['nodes'])} settings, interpolation within "
            f"{errors['largest']:.2%} of a panel's height at {errors['points']} points (median {errors['median']:.2%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
