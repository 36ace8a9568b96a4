"""Logs: what a client over the network says is one line, and does nothing to a terminal."""

from __future__ import annotations

import logging

import pytest

from rmqclient.workers.processes.logs import TextFormatter

FORGED = "key\n2026-01-01 00:00:00,000 CRITICAL 1 root: forged \x1b[31m\u202e"


@pytest.mark.parametrize(
    ("logger", "line"),
    [
        ("rmqclient.broker.limits.counters", "key\\n2026-01-01 00:00:00,000 CRITICAL 1 root: forged \\x1b[31m\\u202e"),
        ("shop.handlers", FORGED),  # an application writes lines as it likes
    ],
)
def test_no_client_begins_a_line_of_the_log(logger: str, line: str) -> None:
    record = logging.makeLogRecord({"name": logger, "msg": "%s", "args": (FORGED,)})
    assert TextFormatter("%(message)s").format(record) == line
