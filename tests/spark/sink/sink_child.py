"""A process that forks drivers of the sink's protocol, without Spark, and lets them die where it is told.

``python -m tests.spark.sink.sink_child`` answers each order with how the driver ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from rmqclient.spark.writing import committing, staging
from rmqclient.spark.writing.ledger import Ledger
from rmqclient.spark.writing.writer import StreamWriter, Written
from rmqclient.store import crash_points
from rmqclient.store.crash_points import CrashPoint
from tests.support.host.forking import ForkingProcess

TOPIC = "out"
SCHEMA = StructType([StructField("value", BinaryType())])


@dataclass(frozen=True)
class Order:
    """One driver: it writes a batch of some parts as a query does, and dies at a step, if one is given."""

    root: str
    batch: int
    parts: int = 2
    rows: int = 400
    step: str = ""
    passes: int = 0
    variant: str = ""


def body(batch: int, part: int, row: int, variant: str = "") -> bytes:
    return f"{batch}/{part}/{row}{variant} {'x' * (row % 60)}".encode()


def drive(order: Order) -> None:
    given = {"path": order.root, "topic": TOPIC, "txnAppId": "app"}
    tasks = StreamWriter(given, SCHEMA, overwrite=False)
    inner = tasks._staging
    messages = []
    for part in range(order.parts):
        values = [body(order.batch, part, row, order.variant) for row in range(order.rows)]
        batch = pa.record_batch([pa.array(values, pa.binary())], ["value"])
        staged = staging.stage(Path(order.root), inner.run, part, 0, iter([batch]), TOPIC)
        messages.append(Written(inner.run, staged, "query"))
    plant(order.step, order.passes)
    StreamWriter(given, SCHEMA, overwrite=False).commit(messages, order.batch)


def plant(step: str, passes: int) -> None:
    """Make this process die at a step of the commit, or at a crash point of the append."""
    if step in CrashPoint.__members__:
        crash_points.arm(CrashPoint[step], passes=passes)
    elif step:
        when, _, name = step.partition(" ")
        owner: Any = committing if name == "append_parts" else Ledger
        setattr(owner, name, dying(getattr(owner, name), first=when == "before"))


def dying(function: Callable[..., Any], *, first: bool) -> Callable[..., Any]:
    def die(*arguments: Any) -> None:
        if not first:
            function(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    return die


class Drivers(ForkingProcess):
    """Starts the process, hands it orders, ends it. A context manager."""

    def __init__(self) -> None:
        super().__init__("tests.spark.sink.sink_child")

    def run(self, order: Order) -> str:
        """Let one driver live; return ``done``, ``killed``, or the error that it raised."""
        return str(json.loads(self.ask(json.dumps(asdict(order)))))


def main() -> None:
    """Fork a driver for each line of standard input."""
    for line in sys.stdin:
        said, says = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(says, _live(line).encode())
            os._exit(0)
        os.close(says)
        with os.fdopen(said) as heard:
            text = heard.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps("killed" if status == -signal.SIGKILL else text), flush=True)


def _live(line: str) -> str:
    try:
        drive(Order(**json.loads(line)))
    except Exception as error:  # noqa: BLE001 - whatever it is, the test hears of it
        traceback.print_exc(limit=-3) if os.environ.get("SINK_TRACE") else None
        return f"{type(error).__name__}: {error}"
    return "done"


if __name__ == "__main__":
    main()
