"""Bodies that are compressed: what the system flag says of them, and what is refused."""

from __future__ import annotations

import zlib

import pytest

from store.bodies import Compression, compress, open_body
from store.errors import BodyUnreadable

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
