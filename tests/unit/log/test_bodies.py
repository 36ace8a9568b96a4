"""Bodies that are compressed: what the system flag says of them, and what is refused."""

from __future__ import annotations

import pickle
import zlib

import pytest

from rmqclient.store.bodies import Compression, compress, open_body
from rmqclient.store.errors import BodyUnreadable
from tests.support.received import received

BODY = b'{"flight": "UA1545", "delay": 2}' * 200


@pytest.mark.parametrize("compression", Compression)
def test_a_body_is_opened_as_its_system_flag_says(compression: Compression) -> None:
    packed = compress(BODY, compression)

    assert len(packed) < len(BODY) // 4
    assert open_body(packed, compression.value, len(BODY)) == BODY


def test_a_body_without_a_kind_of_compression_is_zlib_as_old_clients_wrote_it() -> None:
    assert open_body(zlib.compress(BODY), 0x1, len(BODY)) == BODY


def test_a_body_that_is_not_compressed_is_given_as_it_is() -> None:
    assert open_body(BODY, 0x300, 1) is BODY


@pytest.mark.parametrize("compression", Compression)
def test_a_body_that_opens_to_more_than_the_limit_is_refused(compression: Compression) -> None:
    bomb = compress(bytes(64 << 20), compression)

    with pytest.raises(BodyUnreadable, match=r"opens to more than 1000 \(max_opened_body_bytes\)"):
        open_body(bomb, compression.value, 1_000)


@pytest.mark.parametrize("compression", Compression)
def test_a_body_that_ends_too_soon_or_is_rubbish_is_refused(compression: Compression) -> None:
    packed = compress(BODY, compression)

    for damaged in (packed[: len(packed) // 2], packed[:-5], b"", b"rubbish"):
        with pytest.raises(BodyUnreadable):
            open_body(damaged, compression.value, len(BODY))


def test_a_body_that_is_compressed_in_an_unknown_way_is_refused() -> None:
    with pytest.raises(BodyUnreadable, match="in a way that is not known: 5"):
        open_body(BODY, 0x501, len(BODY))


@pytest.mark.parametrize("compression", Compression)
def test_a_message_gives_its_body_as_it_was_sent_and_as_it_is_stored(compression: Compression) -> None:
    packed = compress(BODY, compression)
    message = received(packed, sys_flag=compression.value)

    assert message.body == BODY
    assert message.body is message.body  # opened once
    assert message.stored_body == packed
    assert message.size < len(BODY)


def test_a_message_that_is_not_compressed_has_one_body() -> None:
    message = received(BODY)

    assert message.body == message.stored_body == BODY


def test_a_message_keeps_its_limit_wherever_it_goes() -> None:
    message = received(compress(BODY, Compression.ZSTD), sys_flag=Compression.ZSTD.value)
    assert message.max_opened_body_bytes == 64 << 20

    message.limited_to(len(BODY) - 1)

    for same in (message, message.redelivered(), message.as_delivered(), pickle.loads(pickle.dumps(message))):
        with pytest.raises(BodyUnreadable, match=f"opens to more than {len(BODY) - 1}"):
            _ = same.body
        assert same.stored_body == compress(BODY, Compression.ZSTD)
    assert message.limited_to(len(BODY)).body == BODY
