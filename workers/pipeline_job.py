"""What ``spark-submit`` runs.

::

    spark-submit .../workers/pipeline_job.py archive orders --store ./store --to ./archive

The arguments are those of ``rmq pipeline``, which prints this line.
"""

# ruff: noqa: PLC0415 - the path is put right first

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run one pipeline; leaves by ``SystemExit``."""
    sys.path[0] = str(Path(__file__).parents[1])  # the directory above, from which packages are imported
    from workers.cli import rmq
    from workers.pipeline_commands import BY_SPARK_SUBMIT

    rmq(["pipeline", *sys.argv[1:]], prog_name="rmq", obj=BY_SPARK_SUBMIT)


if __name__ == "__main__":
    main()
