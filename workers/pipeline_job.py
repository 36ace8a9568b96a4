"""The script that ``spark-submit`` runs.

::

    spark-submit .../rmqclient/workers/pipeline_job.py archive orders --store ./store --to ./archive

The arguments are those of ``rmq pipeline``, which prints this line.
"""

# ruff: noqa: PLC0415 - the path must be set first

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run one pipeline; leaves by ``SystemExit``."""
    sys.path[0] = str(Path(__file__).parents[2])  # the directory above, from which packages are imported
    from rmqclient.workers.cli import rmq
    from rmqclient.workers.commands.pipeline import BY_SPARK_SUBMIT

    rmq(["pipeline", *sys.argv[1:]], prog_name="rmq", obj=BY_SPARK_SUBMIT)


if __name__ == "__main__":
    main()
