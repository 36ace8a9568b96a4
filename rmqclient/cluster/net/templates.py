"""Templates: fast encoding of requests that differ only in some numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, TypeAlias

from rmqclient.cluster.address.url import Keys
from rmqclient.remoting.frame import Frame, encode

Write: TypeAlias = Callable[..., bytes]
"""Gets the opaque of a request and the values of the varying fields; returns its frame."""

_PREFIX: Final = Struct(">ii")


def template_of(asked: Frame, fields: Sequence[str], keys: Keys | None) -> Write:
    """Return an encoder of this request, without a body, for varying ``fields``; it signs if there are keys."""
    return _plain(asked, fields) if keys is None else _signed(asked, fields, keys)


def _plain(asked: Frame, fields: Sequence[str]) -> Write:
    """Return an encoder that formats a fixed header."""
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
        keys.sign(frame)
        return encode(frame)

    return write
