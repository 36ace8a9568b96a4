"""``python -m examples.flights``: see :mod:`examples.flights.demo`."""

from __future__ import annotations

from examples.flights.demo import main

if __name__ == "__main__":
    main(prog_name="python -m examples.flights")
