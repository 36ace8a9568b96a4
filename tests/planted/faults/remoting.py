"""Faults in the protocol: bytes that are taken for a frame, frames that get lost, fields under another one's name."""

from __future__ import annotations

from tests.planted.fault import Fault

FRAME_TESTS = "tests/remoting/test_frame.py"
RECORDINGS = "tests/remoting/test_recordings.py"
TABLE_TESTS = "tests/remoting/test_table.py"
FASTJSON_TESTS = "tests/remoting/bodies/test_fastjson.py"
WIRE_TESTS = "tests/unit/log/test_wire.py"

FAULTS = [
    Fault(
        name="the length field of a frame is not counted",
        file="rmqclient/remoting/frame.py",
        old="    if not 4 <= total <= longest - 4:\n",
        new="    if not 4 <= total <= longest:\n",
        tests=FRAME_TESTS,
        select="too_great",
    ),
    Fault(
        name="frames before a damaged one are lost",
        file="rmqclient/remoting/frame.py",
        old="        if not frames and self.damage is not None:\n",
        new="        if self.damage is not None:\n",
        tests=FRAME_TESTS,
        select="before_the_damage",
    ),
    Fault(
        name="bytes of an unfinished frame are read twice",
        file="rmqclient/remoting/frame.py",
        old="                whole, self._rest = memoryview(self._rest), bytearray()\n",
        new="                whole = memoryview(bytes(self._rest))\n",
        tests=FRAME_TESTS,
        select="byte_by_byte",
    ),
    Fault(
        name="a body is overwritten before its time",
        file="rmqclient/remoting/frame_buffer.py",
        old="        self._buffers.rotate(-1)\n",
        new="",
        tests="tests/remoting/test_frame_buffer.py",
        select="its_turn_again",
    ),
    Fault(
        name="records that wait for those before them are not copied",
        file="rmqclient/spark/cluster/pulling.py",
        old="                chunk.keep_answers()\n",
        new="                pass\n",
        tests="tests/unit/spark/cluster/test_cluster_reads.py",
        select="wait_long",
    ),
    Fault(
        name="an answer that has another code is taken for messages",
        file="store/kernel/serve/found.pxi",
        old="head.code == 0 and ",
        new="",
        tests="tests/remoting/test_found_answers.py",
        select="other_frame",
    ),
    Fault(
        name="two short names of a send are exchanged",
        file="rmqclient/remoting/declarations/sending.py",
        old='"m=batch b, n=bname s"',
        new='"n=batch b, m=bname s"',
        tests=RECORDINGS,
        select="same_after_a_way",
    ),
    Fault(
        name="a required field may be missing",
        file="rmqclient/remoting/declarations/fields.py",
        old="        if not self._required <= values.keys():\n",
        new="        if False:\n",
        tests=TABLE_TESTS,
        select="received_request_that_does_not_fit",
    ),
    Fault(
        name="an object that a body refers to is not put there",
        file="rmqclient/remoting/bodies/fastjson.py",
        old="""if '"$ref"' in text else""",
        new="""if '"$ref":1' in text else""",
        tests=FASTJSON_TESTS,
        select="reference_gives_the_object_again",
    ),
    Fault(
        name="a key holds objects inside of objects",
        file="rmqclient/remoting/bodies/fastjson.py",
        old='        if first == "{" and depth <= MOST_DEPTH:\n',
        new='        if first == "{":\n',
        tests=FASTJSON_TESTS,
        select="no_body_is_refused",
    ),
    Fault(
        name="messages of a broker's batch have the queue offset of the batch",
        file="store/kernel/wire/pulled.pxi",
        old="get_i64(at + R_QUEUE_OFFSET) + message.inner_number)",
        new="get_i64(at + R_QUEUE_OFFSET))",
        tests=WIRE_TESTS,
        select="becomes_its_messages",
    ),
    Fault(
        name="a broker's record may have a topic that is not text",
        file="store/kernel/record/frame.pxi",
        old="    if frame.topic_size == 0 or not is_utf8(at + frame.topic_at, frame.topic_size):\n        return FOUND_BAD_TOPIC\n",
        new="",
        tests=WIRE_TESTS,
        select="topic_that_is_no_text",
    ),
    Fault(
        name="a forked child makes the ids of its parent",
        file="store/wire.py",
        old="    if not _process or _process[0].pid != pid:",
        new="    if not _process:",
        tests=WIRE_TESTS,
        select="forked_child",
    ),
]
