"""The driver of the rig of restarts: one streaming query from a store to Parquet, until it is killed or has finished.

``python -m tests.torture.wholes.child_spark_restarts ROOT DIRECTORY MODE LIMIT``: in the mode ``run`` it goes on for
ever, in ``finish`` it ends with what is there. Everything that Spark writes is in the directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rmqclient.spark import session

TOPICS = "events|extra-.*"
"""The extra ones come while the query is killed and started again."""


def main(root: str, directory: str, mode: str, limit: str) -> None:
    """Run the query."""
    scratch = Path(directory) / "tmp"
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={scratch}"
    settings = {
        "spark.driver.extraJavaOptions": java,
        "spark.driver.memory": "600m",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.log.level": "OFF",
    }
    spark = session("local[2]", "restarts", **settings)
    reading = spark.readStream.format("rmq").option("subscribePattern", TOPICS).option("startingOffsets", "earliest")
    found = reading.option("maxOffsetsPerTrigger", limit).option("minPartitions", "2").load(root)
    writing = found.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    if mode == "finish":
        writing = writing.trigger(availableNow=True)
    writing.start(f"{directory}/sink").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
