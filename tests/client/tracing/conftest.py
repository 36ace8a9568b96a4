"""Spans that are collected in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK is not installed")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rmqclient import tracing
from tests.client.conftest import backend, producer, store

__all__ = ["Collected", "backend", "producer", "spans", "store"]


class Collected:
    """The spans that have ended, by name."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("application")

    def named(self, name: str) -> list:  # type: ignore[type-arg]
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str):  # type: ignore[no-untyped-def]
        (found,) = self.named(name)
        return found


@pytest.fixture
def spans() -> Iterator[Collected]:
    collected = Collected()
    tracing.instrument(collected.provider)
    yield collected
    tracing.uninstrument()
