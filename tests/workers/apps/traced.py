"""An application whose spans are written to a file, a batch at a time, as an exporter over a network would."""

from __future__ import annotations

import os
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

import rmqclient.tracing
from rmqclient import App

record = Path(os.environ["RECORD"]).open("a", encoding="utf-8")  # noqa: SIM115 - as long as the process
exporter = ConsoleSpanExporter(out=record, formatter=lambda span: f"1 {span.name}\n")
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))
trace.set_tracer_provider(provider)
rmqclient.tracing.instrument()

app = App()


@app.handler("orders", group="billing")
def bill(message: bytes) -> None:
    """Say on standard error that a message came."""
    os.write(2, b"handled " + message + b"\n")
