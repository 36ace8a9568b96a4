"""A template writes the frame that encoding the same request writes, with whatever texts it has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.cluster.address.url import Keys
from rmqclient.cluster.net.templates import template_of
from rmqclient.remoting.frame import Frame, FrameReader, encode

KEYS = Keys("name", "secret")
TEXTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.text('%d"opaque":0é\\', max_size=20))
NUMBERS = st.integers(0, 2**63 - 1)


@given(TEXTS, NUMBERS, NUMBERS, st.integers(1, 2**31 - 1))
def test_a_template_writes_what_encoding_writes(texts: dict[str, str], first: int, second: int, opaque: int) -> None:
    asked = Frame(11, {"queueOffset": "0", **texts, "maxMsgNums": "1"})
    numbered = asked.fields | {"queueOffset": str(first), "maxMsgNums": str(second)}
    expected = encode(Frame(11, numbered, opaque=opaque))
    assert template_of(asked, ("queueOffset", "maxMsgNums"), None)(opaque, first, second) == expected
    assert template_of(asked, ("maxMsgNums", "queueOffset"), None)(opaque, second, first) == expected


@pytest.mark.parametrize("offset", [0, 7, 2**40])
def test_with_keys_each_request_is_signed(offset: int) -> None:
    asked = Frame(11, {"topic": "%RETRY%g", "queueOffset": "0"})
    (read,) = FrameReader().feed(template_of(asked, ("queueOffset",), KEYS)(5, offset))
    expected = Frame(11, {"topic": "%RETRY%g", "queueOffset": str(offset)}, opaque=5)
    KEYS.sign(expected)
    assert read == expected
