"""Faults in the protocol: bytes that are taken for a frame, frames that get lost, fields under another one's name."""

from __future__ import annotations

from tests.planted.fault import Fault

FRAME_TESTS = "tests/remoting/test_frame.py"
RECORDINGS = "tests/remoting/test_recordings.py"
TABLE_TESTS = "tests/remoting/test_table.py"

FAULTS = [
    Fault(
        name="the length field of a frame is not counted",
        file="remoting/frame.py",
        old="    if not 4 <= total <= MAX_FRAME_BYTES - 4:\n",
        new="    if not 4 <= total <= MAX_FRAME_BYTES:\n",
        tests=FRAME_TESTS,
        select="too_great",
    ),
    Fault(
        name="frames before a damaged one are lost",
        file="remoting/frame.py",
        old="        elif not frames:\n",
        new="        else:\n",
        tests=FRAME_TESTS,
        select="before_the_damage",
    ),
    Fault(
        name="bytes of an unfinished frame are read twice",
        file="remoting/frame.py",
        old="            self._rest.clear()\n",
        new="",
        tests=FRAME_TESTS,
        select="byte_by_byte",
    ),
    Fault(
        name="two short names of a send are exchanged",
        file="remoting/declarations/sending.py",
        old='"m=batch b, n=bname s"',
        new='"n=batch b, m=bname s"',
        tests=RECORDINGS,
        select="same_after_a_way",
    ),
    Fault(
        name="a required field may be missing",
        file="remoting/declarations/fields.py",
        old="        if not self._required <= values.keys():\n",
        new="        if False:\n",
        tests=TABLE_TESTS,
        select="received_request_that_does_not_fit",
    ),
]
