"""Templates: requests of which only some numbers change, and which are written millions of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, TypeAlias

from rmqclient.cluster.address.url import Keys
from rmqclient.cluster.net.signing import sign
from rmqclient.remoting.frame import Frame, encode

Write: TypeAlias = Callable[..., bytes]
"""Gets the opaque of a request and the numbers of its fields; returns its frame."""

_PREFIX: Final = Struct(">ii")


def template_of(asked: Frame, fields: Sequence[str], keys: Keys | None) -> Write:
    """Return what writes this request, without a body, with other numbers in these fields; signed if there are keys."""
    return _plain(asked, fields) if keys is None else _signed(asked, fields, keys)


def _plain(asked: Frame, fields: Sequence[str]) -> Write:
    """Let the header be formatted: its texts stay, and with them whatever they have in them."""
    texts = {name.replace("%", "%%"): text.replace("%", "%%") for name, text in asked.fields.items()}
    frame = encode(Frame(asked.code, texts | dict.fromkeys(fields, "%d")))
    form = frame[_PREFIX.size :].replace(b'"opaque":0', b'"opaque":%d', 1)
    order = sorted(range(len(fields)), key=lambda number: form.index(b'"%b":"%%d"' % fields[number].encode()))

    def write(opaque: int, *numbers: int) -> bytes:
        header = form % (opaque, *[numbers[place] for place in order])
        return _PREFIX.pack(4 + len(header), len(header)) + header

    return write


def _signed(asked: Frame, fields: Sequence[str], keys: Keys) -> Write:
    def write(opaque: int, *numbers: int) -> bytes:
        frame = Frame(asked.code, asked.fields | dict(zip(fields, map(str, numbers), strict=True)), opaque=opaque)
        sign(frame, keys)
        return encode(frame)

    return write
