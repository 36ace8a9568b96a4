"""Spans of OpenTelemetry for sends and for calls of handlers, by its conventions for messaging and for RocketMQ.

The names are those of semantic conventions 1.44, which call messaging "in development":
https://opentelemetry.io/docs/specs/semconv/messaging/

=====================  ========  ===================================================================================
span                   kind      for
=====================  ========  ===================================================================================
``send TOPIC``         PRODUCER  a message, or a batch; its context goes into each message
``send TOPIC``         CLIENT    the same for messages that have a context, such as a buffered one: linked to it
``create TOPIC``       PRODUCER  a message that was put into the write buffer, or into an outbox
``receive TOPIC``      CLIENT    a pull that brought messages: linked to what sent each of them
``process TOPIC``      CONSUMER  a call of a handler
=====================  ========  ===================================================================================

The context travels in properties of the message, by the global propagator: ``traceparent``, ``tracestate`` and
``baggage``. A copy of a message, for a retry or as a dead letter, keeps them. So the span of each attempt leads to the
span that sent the message: the first attempt is its child, a later attempt links to it, and a batch links to all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

from rmqclient.backend.around import Outgoing
from rmqclient.errors import NotInstalled
from rmqclient.failures.application_errors import is_a, text_of
from rmqclient.failures.suspend import Suspend
from rmqclient.handler import Handler
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.store import stored_message

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode
except ImportError as error:
    raise NotInstalled("OpenTelemetry is not installed: pip install 'rmqclient[opentelemetry]'") from error

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

    Attributes = dict[str, AttributeValue]

_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
_FLUSH_MS = 2_000
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Spans:
    """Makes the spans of one producer or consumer. ``namespace`` tells its topics from those of other places."""

    def __init__(self, namespace: str, provider: TracerProvider | None = None, *, links_only: bool = False) -> None:
        self._namespace = namespace
        self._provider = provider
        self._links_only = links_only
        self._tracer = trace.get_tracer("rmqclient", tracer_provider=provider, schema_url=_SCHEMA)
        self._fields = tuple(field.encode() for field in propagate.get_global_textmap().fields)

    def send(self, outgoing: Outgoing) -> _SpanOfSend:
        """Begin the span of a send, and put its context into messages that have none."""
        carried = [_context_in(message.properties or _NOTHING) for message in outgoing.messages]
        links = [Link(each) for each in carried if each is not None]
        operation = "create" if outgoing.is_buffered else "send"
        span = self._tracer.start_span(
            f"{operation} {outgoing.messages[0].topic}",
            kind=SpanKind.CLIENT if len(links) == len(carried) else SpanKind.PRODUCER,
            attributes={**self._common(operation, outgoing.messages[0].topic), **_of_sent(outgoing)},
            links=links,
        )
        headers: dict[str, str] = {}
        propagate.inject(headers, trace.set_span_in_context(span))
        messages = [
            message if found is not None else _with_properties(message, headers)
            for message, found in zip(outgoing.messages, carried, strict=True)
        ]
        return _SpanOfSend(span, messages)

    def receive(self, group: str, messages: Sequence[ReceivedMessage], begun_ns: int) -> None:
        """Make the span of a pull, with a link for each message."""
        topic = messages[0].topic
        sent = [found for each in messages if (found := _context_in(each.some_properties(self._fields))) is not None]
        self._tracer.start_span(
            f"receive {topic}",
            kind=SpanKind.CLIENT,
            attributes={
                **self._common("receive", topic),
                "messaging.consumer.group.name": group,
                "messaging.destination.partition.id": str(messages[0].queue_id),
                "messaging.batch.message_count": len(messages),
            },
            links=[Link(each) for each in {each.span_id: each for each in sent}.values()],
            start_time=begun_ns,
        ).end()

    @contextmanager
    def process(self, handler: Handler, messages: Sequence[ReceivedMessage]) -> Iterator[None]:
        """Run a call of a handler in a span, which is the current one for what the handler does."""
        headers = [message.some_properties(self._fields) for message in messages]
        sent = [found for each in headers if (found := _context_in(each)) is not None]
        is_child = not self._links_only and handler.batch is None and messages[0].delivery_attempt == 1
        before: Context | None = propagate.extract(headers[0]) if handler.batch is None else None
        span = self._tracer.start_span(
            f"process {handler.topic}",
            context=before if is_child else trace.set_span_in_context(trace.INVALID_SPAN, before),
            kind=SpanKind.CONSUMER,
            attributes={**self._common("process", handler.topic), **_of_received(handler, messages)},
            links=[Link(each) for each in {each.span_id: each for each in sent}.values()],
        )
        token = context.attach(trace.set_span_in_context(span, before))
        try:
            yield
        except BaseException as error:
            _record(span, error)
            raise
        finally:
            context.detach(token)
            span.end()

    def decide(self, half: SendResult | ReceivedMessage, group: str, *, commit: bool) -> None:
        """Say in the current span, if there is one, that a transaction was decided."""
        del group
        event = "messaging.rocketmq.commit" if commit else "messaging.rocketmq.rollback"
        trace.get_current_span().add_event(event, {"messaging.message.id": half.message_id})

    def close(self) -> None:
        """Export the spans that wait: a worker ends without the exporter's own hook."""
        flush = getattr(self._provider or trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(_FLUSH_MS)

    def _common(self, operation: str, topic: str) -> Attributes:
        return {
            "messaging.system": "rocketmq",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": topic,
            "messaging.rocketmq.namespace": self._namespace,
        }


class _SpanOfSend:
    """The span of one send."""

    def __init__(self, span: Span, messages: Sequence[Message]) -> None:
        self.messages = messages
        self._span = span

    def end(self, results: Sequence[SendResult]) -> None:
        """Say where a single message stands, and end the span."""
        if len(results) == 1:
            result = results[0]
            self._span.set_attribute("messaging.message.id", result.message_id)
            if result.queue.topic == self.messages[0].topic:  # a message that waits stands in another topic first
                self._span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
        self._span.end()

    def fail(self, error: BaseException) -> None:
        """Record why it failed, and end the span."""
        _record(self._span, error)
        self._span.end()


def _of_sent(outgoing: Outgoing) -> Attributes:
    found: Attributes = {"messaging.rocketmq.message.type": _type_of(outgoing)}
    if outgoing.is_batch:
        found["messaging.batch.message_count"] = len(outgoing.messages)
    else:
        found |= _of_message(outgoing.messages[0])
    if outgoing.delay_level:
        found["messaging.rocketmq.message.delay_time_level"] = outgoing.delay_level
    if outgoing.due_ms:
        found["messaging.rocketmq.message.delivery_timestamp"] = outgoing.due_ms
    if outgoing.sharding_key is not None:
        found["messaging.rocketmq.message.group"] = outgoing.sharding_key
    return found


def _type_of(outgoing: Outgoing) -> str:
    if outgoing.is_half:
        return "transaction"
    if outgoing.delay_level or outgoing.due_ms:
        return "delay"
    return "normal" if outgoing.sharding_key is None else "fifo"


def _of_received(handler: Handler, messages: Sequence[ReceivedMessage]) -> Attributes:
    message = messages[0]
    found: Attributes = {
        "messaging.consumer.group.name": handler.group,
        "messaging.rocketmq.consumption_model": "broadcasting" if handler.broadcast else "clustering",
        "messaging.destination.partition.id": str(message.queue_id),
    }
    if handler.batch is not None:
        found["messaging.batch.message_count"] = len(messages)
        return found
    found |= {"messaging.message.id": message.message_id, **_of_message(message)}
    found["rmq.delivery_attempt"] = message.delivery_attempt
    if message.sharding_key is not None:
        found["messaging.rocketmq.message.group"] = message.sharding_key
    return found


def _of_message(message: Message | ReceivedMessage) -> Attributes:
    found: Attributes = {}
    if message.tags is not None:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = message.keys
    return found


def _context_in(headers: Mapping[str, str]) -> trace.SpanContext | None:
    """Return the context that a message carries; None if it carries none."""
    if not headers:
        return None
    found = trace.get_current_span(propagate.extract(headers, context.Context())).get_span_context()
    return found if found.is_valid else None


def _with_properties(message: Message, more: Mapping[str, str]) -> Message:
    properties = {**(message.properties or _NOTHING), **more}
    return stored_message(
        message.topic, message.body, message.tags, message.keys, properties, message.flag, message.sys_flag
    )


def _record(span: Span, error: BaseException) -> None:
    if is_a(error, Suspend):  # the handler asked for a pause: nothing is wrong
        span.add_event("rmq.suspended", {"rmq.pause_s": error.seconds})
        return
    name = type(error).__qualname__
    span.set_attribute("error.type", name)
    with suppress(BaseException):  # it asks the error for its text
        span.record_exception(error)
    span.set_status(StatusCode.ERROR, f"{name}: {text_of(error)}")
