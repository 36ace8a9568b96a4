"""Instrumentor: how ``opentelemetry-instrument`` switches spans on in a program that does not do it itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqclient import tracing

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


class RmqInstrumentor:
    """Switches spans on and off, as the instrumentors of other packages do."""

    def instrument(
        self, *, tracer_provider: TracerProvider | None = None, links_only: bool = False, **_: object
    ) -> None:
        """Call :func:`rmqclient.tracing.instrument`. What instrumentors of other packages are told is passed over."""
        tracing.instrument(tracer_provider, links_only=links_only)

    def uninstrument(self, **_: object) -> None:
        """Call :func:`rmqclient.tracing.uninstrument`."""
        tracing.uninstrument()
