"""Images of power cuts by hand: ``python -m tests.images --seed 7 --images 5000``.

``--image 1234`` does again what leads to one image of a run, and judges that alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.images import scenario


def main() -> int:
    """Return 1 when something was wrong."""
    parser = argparse.ArgumentParser(description="Recover images of power cuts and judge what is left.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--images", type=int, default=1_000)
    parser.add_argument("--images-per-life", type=int, default=scenario.IMAGES_PER_LIFE)
    parser.add_argument("--image", type=int, help="only this one, by its number")
    parser.add_argument("--directory", type=Path, help="work inside of this one and leave everything there")
    options = parser.parse_args()
    if options.directory is not None:
        return _run(options, options.directory)
    with tempfile.TemporaryDirectory(prefix="rmq-images-", dir=scenario.memory()) as scratch:
        return _run(options, Path(scratch))


def _run(options: argparse.Namespace, scratch: Path) -> int:
    started = time.monotonic()
    if options.image is not None:
        figures = scenario.run_one(options.seed, options.image, scratch, options.images_per_life)
    else:
        figures = scenario.run(options.seed, options.images, scratch, options.images_per_life)
    print(figures)
    print(f"{figures.images / (time.monotonic() - started):.0f} images a second")
    return 1 if figures.problems else 0


if __name__ == "__main__":
    sys.exit(main())
