"""Topic names: checks the names that clients give, with a broker's error texts. [TopicValidator of 4.9.7]"""

from __future__ import annotations

import re
from typing import Final

from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
MOST_CHARACTERS: Final = 127
"""Characters of a name, at most: a record has its length in one signed byte."""

_WRONG: Final = re.compile(r"[^%|a-zA-Z0-9_-]")


def check_name(topic: str) -> None:
    """Raise AnswerError with code 1 for an invalid name.

    Names become directories, so every name must be checked here before it reaches the store.
    """
    if not topic.strip():
        raise AnswerError(ResponseCode.SYSTEM_ERROR, "The specified topic is blank.")
    if _WRONG.search(topic):
        raise AnswerError(
            ResponseCode.SYSTEM_ERROR,
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        )
    if len(topic) > MOST_CHARACTERS:
        raise AnswerError(ResponseCode.SYSTEM_ERROR, "The specified topic is longer than topic max length.")


def retry_topic(group: str) -> str:
    """Return the retry topic of a group. [MixAll.getRetryTopic]"""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the dead-letter topic of a group. [MixAll.getDLQTopic]"""
    return DEAD_LETTER_PREFIX + group
