"""Tracing: what happened to a message, told to something that collects it.

::

    import rmqclient.tracing

    rmqclient.tracing.instrument()      # spans of OpenTelemetry, from here on, in this process

``observers`` is the seam: what producers and consumers tell, and to whom. ``outgoing`` and ``incoming`` put an observer
around a sender and around the calls of a handler; without an observer neither is there. ``spans`` makes spans of
OpenTelemetry. docs/operate/traces.md describes them for users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqclient.tracing import observers

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["instrument", "uninstrument"]


def instrument(tracer_provider: TracerProvider | None = None, *, links_only: bool = False) -> None:
    """Make spans for what this process sends, pulls and handles, by producers and consumers made from now on.

    ``tracer_provider`` makes the spans; None takes OpenTelemetry's global one. With ``links_only``, a span of a handler
    begins a trace of its own and links to the span that sent its message; by default it is a child of that span.

    Call it where the application is made, as in the module that ``rmq run`` imports: each worker runs that. A second
    call replaces the first. Raises NotInstalled without OpenTelemetry: ``pip install 'rmqclient[opentelemetry]'``.
    """
    from rmqclient.tracing.spans import Spans  # noqa: PLC0415 - nothing of OpenTelemetry is imported without this call

    observers.install(lambda namespace: Spans(namespace, tracer_provider, links_only=links_only))


def uninstrument() -> None:
    """Make no spans for the producers and consumers made from now on."""
    observers.install(None)
