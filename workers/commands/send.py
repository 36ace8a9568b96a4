"""``rmq send``: one message, or one for each line of a file, at a rate."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opening
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import duration, name_and_value, refuse, with_output, with_store

if TYPE_CHECKING:
    from rmqclient import Message, Producer, SendResult

_SENT = ("body", "body_base64", "tags", "keys", "sharding_key", "properties", "flag")
_OF_STORED = ("topic", "queue_id", "queue_offset", "message_id", "born_timestamp", "store_timestamp", "body_error")
_OF_DEAD_LETTERS = ("group", "attempts", "given_up", "done", "error", "failures")
"""What `rmq tail` and `rmq dlq export` say of a message: what is sent again, where it stood, and why it failed."""


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.argument("body", required=False)
@click.option("--file", type=click.File("rb"), help="The body is the whole file.")
@click.option("--lines", type=click.File("rb"), help="A message for each line of the file; - for standard input.")
@click.option(
    "--jsonl",
    type=click.File("rb"),
    help="A message for each line, as `rmq tail -o jsonl` prints them: body or body_base64, tags, keys, sharding_key, "
    "properties. Objects without a body are bodies as they are; - for standard input.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Maximum number of messages per second.")
@click.option("--tags", help="Tag of the message.")
@click.option("--key", "keys", multiple=True, help="Key to find it by; may be repeated.")
@click.option("--sharding-key", help="Messages with the same sharding key keep their order.")
@click.option("--sharding-key-from", help="JMESPath for the sharding key in each body, such as customer.id.")
@click.option(
    "--property", "properties", type=name_and_value, multiple=True, help="Property of the message; others may follow."
)
@click.option("--delay-level", type=click.IntRange(1, 18), help="1 to 18: 1s 5s 10s 30s 1m 2m ... 2h.")
@click.option("--compress", type=click.Choice(["lz4", "zstd", "zlib"]), help="Store it compressed, if that is smaller.")
@click.option("--delay", type=duration, help="Time until it is delivered: 30s, 500ms, 2h or 3d.")
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="Number of times to send it.")
@with_store
@with_output
def send(
    topic_name: str,
    body: str | None,
    file: BinaryIO | None,
    lines: BinaryIO | None,
    jsonl: BinaryIO | None,
    rate: float | None,
    sharding_key_from: str | None,
    delay_level: int | None,
    compress: str | None,
    delay: float | None,
    count: int,
    root: Path | str,
    out: Output,
    **parts: Any,
) -> None:
    """Send BODY to TOPIC, or with - standard input. The store is made if it does not exist.

    With --lines or --jsonl only the number of messages is shown. A line that cannot be sent as a message is set aside:
    it is named, the others are sent, and the exit code is 1.
    """
    from rmqclient import Compression, Producer
    from rmqclient.errors import MessageRejected
    from rmqclient.names import COMMAND_GROUP

    if delay_level is not None and delay is not None:
        raise click.UsageError("give either --delay or --delay-level")
    if sharding_key_from is not None and parts["sharding_key"] is not None:
        raise click.UsageError("give either --sharding-key or --sharding-key-from")
    _check_parts(parts)
    if sum(each is not None for each in (body, file, lines, jsonl)) > 1:
        raise click.UsageError("give one of BODY, --file, --lines and --jsonl")
    _check_amount(count, of_lines=bool(lines or jsonl))
    compressed: Any = {"compression": Compression[compress.upper()], "compress_over_bytes": 0} if compress else {}
    keyed = _keyed_by(sharding_key_from)
    many = lines if lines is not None else jsonl
    if many is None:
        single = file.read() if file is not None else _body(body)
        wanted: Iterable[tuple[Message, str | None]] = [keyed(_message(topic_name, single, parts))] * count
        given = None
    else:
        of = _message if lines is not None else _of_json
        wanted = given = _Lines(lambda line: keyed(of(topic_name, line, parts)), many)

    def sent(producer: Producer) -> Iterator[SendResult]:
        for each, sharding_key in _at_rate(wanted, rate):
            try:
                yield producer.send(each, sharding_key, delay_level=delay_level, delay=delay)
            except MessageRejected as error:
                if given is None:
                    raise
                given.set_aside(error)

    with opening(root, lambda: Producer(root, group=COMMAND_GROUP, **compressed)) as producer:
        if many is None:
            rows = [status.sent_row(result) for result in sent(producer)]
        else:
            rows = [{"topic": topic_name, "sent": sum(1 for _ in sent(producer))}]
    out.write(rows)
    if given is not None and given.aside:
        raise click.ClickException(f"not sent: {'line' if len(given.aside) == 1 else 'lines'} {given.aside_in_words}")


def _check_amount(count: int, *, of_lines: bool) -> None:
    """Raise UsageError for an option that is for several messages, or for one."""
    if of_lines:
        refuse(["count"], "beside --lines and --jsonl, which send each line once")
    elif count == 1:
        refuse(["rate"], "on one message: it is for --count, --lines and --jsonl")


def _check_parts(parts: dict[str, Any]) -> None:
    """Raise UsageError for a property that is given twice, and UnicodeEncodeError for bytes that are not UTF-8."""
    for text in (parts["tags"], parts["sharding_key"], *parts["keys"], *chain(*parts["properties"])):
        (text or "").encode()
    names = [name for name, _ in parts["properties"]]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise click.UsageError(
            f"--property {twice[0]} is given {names.count(twice[0])} times: a property has one value"
        )


def _message(topic: str, body: bytes, parts: dict[str, Any]) -> tuple[Message, str | None]:
    from rmqclient import Message

    properties = dict(parts["properties"])
    message = Message(
        topic, body, tags=parts["tags"], keys=parts["keys"], properties=properties, flag=parts.get("flag", 0)
    )
    return message, parts["sharding_key"]


def _of_json(topic: str, line: bytes, parts: dict[str, Any]) -> tuple[Message, str | None]:
    import orjson

    from rmqclient.admin.life import own_properties
    from rmqclient.errors import MessageRejected

    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise click.ClickException(f"{line[:60]!r} is not JSON: {error}") from error
    if not isinstance(row, dict) or not {"body", "body_base64"} & row.keys():
        return _message(topic, line, parts)
    if strange := row.keys() - {*_SENT, *_OF_STORED, *_OF_DEAD_LETTERS}:
        raise click.ClickException(
            f"{_shown(sorted(strange))} would be lost, since no message has that: beside a body stands what `rmq tail "
            '-o jsonl` prints; put an object that is all body under "body"'
        )
    if row.get("body_error"):
        raise MessageRejected(f"its body could not be opened, and stands here as it is stored: {row['body_error']}")
    text = row.get("body")
    if row.get("body_base64") is not None:
        body = _of_base64(_text(row, "body_base64") or "")
    else:
        body = text.encode() if isinstance(text, str) else orjson.dumps(text)
    said = {
        "tags": _text(row, "tags") or parts["tags"],
        "keys": _keys(row) or parts["keys"],
        "sharding_key": _text(row, "sharding_key") or parts["sharding_key"],
        "properties": {**own_properties(_properties(row)), **dict(parts["properties"])},
        "flag": _flag(row),
    }
    return _message(topic, body, said)


def _of_base64(text: str) -> bytes:
    """Return the bytes of a ``body_base64``, in which white space says nothing. Raises ClickException."""
    import base64

    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise click.ClickException(f'"body_base64": {_shown(text)} is not base64: {error}') from error


def _text(row: dict[str, Any], name: str) -> str | None:
    """Return a value that must be text or null. Raises ClickException."""
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise click.ClickException(f'"{name}": {_shown(value)} is not text: put it in quotes')
    return value


def _keys(row: dict[str, Any]) -> list[str] | None:
    """Return the keys: text, or a list of texts. Raises ClickException."""
    keys = row.get("keys")
    if keys is None or isinstance(keys, str):
        return [keys] if keys else None
    if isinstance(keys, list) and all(isinstance(each, str) for each in keys):
        return keys
    raise click.ClickException(f'"keys": {_shown(keys)} is not a list of texts: put each key in quotes')


def _properties(row: dict[str, Any]) -> dict[str, str]:
    """Return the properties, texts by their names. Raises ClickException."""
    properties = row.get("properties") or {}
    if isinstance(properties, dict) and all(isinstance(each, str) for each in properties.values()):
        return properties
    raise click.ClickException(f'"properties": {_shown(properties)} is not an object of texts: put each in quotes')


def _flag(row: dict[str, Any]) -> int:
    """Return the flag, by default 0. Raises ClickException."""
    flag = row.get("flag") or 0
    if isinstance(flag, int) and -(1 << 31) <= flag < 1 << 31:
        return flag
    raise click.ClickException(f'"flag": {_shown(flag)} is not a whole number of 32 bits')


def _shown(value: object) -> str:
    """Return a value of a line as JSON, of a long one the beginning."""
    import orjson

    return orjson.dumps(value).decode()[:60]


def _keyed_by(expression: str | None) -> Callable[[tuple[Message, str | None]], tuple[Message, str | None]]:
    """Return what gives a message the sharding key that a JMESPath finds in its body; None leaves it without one.

    Raises BadParameter for what is no JMESPath; what is returned raises ClickException for a body that is not JSON, or
    in which no text or number is found: without a key the message would leave its order.
    """
    import jmespath
    import orjson
    from jmespath.exceptions import JMESPathError

    if expression is None:
        return lambda made: made
    try:
        compiled = jmespath.compile(expression)
    except JMESPathError as error:
        reason = " ".join(str(error).split())
        raise click.BadParameter(f"{expression!r}: {reason}", param_hint="--sharding-key-from") from error

    def keyed(made: tuple[Message, str | None]) -> tuple[Message, str | None]:
        message, _ = made
        assert isinstance(message.body, bytes)
        try:
            found = compiled.search(orjson.loads(message.body))
        except orjson.JSONDecodeError as error:
            raise click.ClickException(f"{message.body[:60]!r} is not JSON: {error}") from error
        except JMESPathError as error:
            raise click.ClickException(f"{message.body[:60]!r}: {expression!r} does not fit it: {error}") from error
        if not isinstance(found, str | int | float) or found == "":
            raise click.ClickException(f"{message.body[:60]!r}: {expression!r} finds {_shown(found)}, no sharding key")
        return message, str(found)

    return keyed


class _Lines:
    """What is made of the lines of a file that are not empty, and the numbers of those that no message can hold."""

    def __init__(self, made: Callable[[bytes], tuple[Message, str | None]], file: BinaryIO) -> None:
        self._made = made
        self._file = file
        self._number = 0
        self.aside: list[int] = []

    def __iter__(self) -> Iterator[tuple[Message, str | None]]:
        """Yield one message after the other. A line that is no message is set aside, like one that cannot be sent."""
        from rmqclient.errors import MessageRejected

        for number, line in enumerate(self._file, 1):
            self._number = number
            if not (text := line.rstrip(b"\r\n")):
                continue
            try:
                made = self._made(text)
            except (click.ClickException, MessageRejected) as error:
                self.set_aside(error)
            else:
                yield made

    def set_aside(self, error: Exception) -> None:
        """Name the present line, and go on behind it."""
        click.echo(f"line {self._number} is set aside: {error}", err=True)
        self.aside.append(self._number)

    @property
    def aside_in_words(self) -> str:
        """The numbers of the lines that were set aside."""
        return ", ".join(map(str, self.aside))


def _at_rate(
    wanted: Iterable[tuple[Message, str | None]],
    rate: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[Message, str | None]]:
    begun = clock()
    for number, each in enumerate(wanted):
        if rate is not None:
            sleep(max(0.0, begun + number / rate - clock()))
        yield each


def _body(argument: str | None) -> bytes:
    if argument is not None and argument != "-":
        return os.fsencode(argument)  # the bytes of the command line, whatever their encoding
    if argument is None and sys.stdin.isatty():
        raise click.UsageError("no BODY: give it as an argument, or - to type it")
    body = sys.stdin.buffer.read()
    if argument is None and not body:
        raise click.UsageError("no BODY, and standard input is empty: give - for an empty body")
    return body
