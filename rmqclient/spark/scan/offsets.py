"""Offsets of a read: where it begins and ends, queue by queue, and how much one micro-batch takes.

An offset here is the next offset to read, never the last one that was read. Ranges are half open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rmqclient.arrow.ranges import Offsets, Ranges, in_words
from rmqclient.errors import DataLost
from rmqclient.spark.scan.read_options import EARLIEST, LATEST, Point, ReadOptions, Selection
from rmqclient.store import MessageQueue
from rmqclient.store.errors import UnknownTopic

if TYPE_CHECKING:
    from rmqclient.spark.scan.place import Place

_OF_THE_STORE = re.compile(
    r"RMQ_SYS_.*|rmq_sys_.*|SCHEDULE_TOPIC_XXXX|TBW102|OFFSET_MOVED_EVENT|SELF_TEST_TOPIC|BenchmarkTest"
)
"""Topics of the store, or of brokers, such as those of delayed messages. ``subscribePattern`` skips them."""


def selected(place: Place, selection: Selection, *, may_come: bool = False) -> list[MessageQueue]:
    """Return the queues to read, sorted.

    Raises UnknownTopic if a named topic or queue does not exist, unless it ``may_come`` later.
    """
    if selection.assigned:
        queues = set(place.queues({queue.topic for queue in selection.assigned}))
        missing = sorted(set(selection.assigned) - queues)
        if missing and not may_come:
            raise UnknownTopic(f"option assign: {named(missing)}: the store has no such queue")
        return [queue for queue in selection.assigned if queue not in missing]
    if selection.pattern:
        matches = re.compile(selection.pattern).fullmatch
        return place.queues(
            {topic for topic in place.topics() if matches(topic) and not _OF_THE_STORE.fullmatch(topic)}
        )
    found = place.queues(selection.topics)
    unknown = sorted(set(selection.topics) - {queue.topic for queue in found}, key=selection.topics.index)
    if unknown and not may_come:
        known = ", ".join(place.topics())
        raise UnknownTopic(f"option subscribe: nothing was ever sent to {', '.join(unknown)}; topics there: {known}")
    return found


def available(place: Place, selection: Selection, *, may_come: bool = False) -> Ranges:
    """Return the range of offsets that each selected queue has now. Raises as :func:`selected`."""
    return place.ranges(selected(place, selection, may_come=may_come))


def starting(place: Place, there: Ranges, options: ReadOptions) -> Offsets:
    """Return the offsets at which a new read begins: by timestamps if the options give any, otherwise by offsets.

    Raises ValueError if the offsets do not name each queue, or if all messages are older than the time; DataLost if a
    queue does not have the offset.
    """
    if options.starting_timestamp is not None or options.starting_timestamps:
        found = _by_time(
            "startingOffsetsByTimestamp", place, there, options.starting_timestamps, options.starting_timestamp
        )
        late = [queue for queue, offset in found.items() if offset == there[queue].stop]
        if late and not options.too_late_is_latest:
            raise ValueError(
                f"{named(late)}: no message was stored at the given start time or later; to begin at the end then, "
                "set startingOffsetsByTimestampStrategy=latest"
            )
        return found
    return _by_offsets("startingOffsets", there, options.starting, options.fail_on_data_loss)


def ending(place: Place, there: Ranges, options: ReadOptions) -> Offsets:
    """Return the offsets at which a batch ends. Raises as :func:`starting`."""
    if options.ending_timestamp is not None or options.ending_timestamps:
        each, usual = options.ending_timestamps, options.ending_timestamp
        return _by_time("endingOffsetsByTimestamp", place, there, each, usual)
    return _by_offsets("endingOffsets", there, options.ending, options.fail_on_data_loss)


def between(start: Offsets, end: Offsets) -> Ranges:
    """Return the ranges that are not empty."""
    ranges = {queue: range(start.get(queue, 0), stop) for queue, stop in end.items()}
    return {queue: wanted for queue, wanted in ranges.items() if wanted}


def kept(place: Place, start: Offsets, end: Offsets, *, fail_on_data_loss: bool) -> Ranges:
    """Return the parts of the ranges between two offsets that still exist.

    A queue that ``start`` lacks is new: it is read from its first message on. Raises DataLost if a part is gone and
    ``fail_on_data_loss`` is set.
    """
    found = {}
    wanted = between(start, end)
    present = place.ranges(wanted)
    for queue, offsets in wanted.items():
        there = present[queue]
        begin = max(offsets.start, there.start)
        if begin > offsets.start and fail_on_data_loss:
            raise removed(queue, offsets.start, min(there.start, offsets.stop), there)
        if offsets.stop > there.stop and fail_on_data_loss:
            raise DataLost(
                f"messages {there.stop} to {offsets.stop - 1} of {in_words(queue)} were read before and are gone: the "
                f"store ends at {there.stop}. Was it replaced? {_HOW_TO_GO_ON}"
            )
        found[queue] = range(begin, min(offsets.stop, there.stop))
    return {queue: offsets for queue, offsets in found.items() if offsets}


def removed(queue: MessageQueue, start: int, stop: int, there: range) -> DataLost:
    """Return the error for messages that retention removed before they were read."""
    return DataLost(
        f"messages {start} to {stop - 1} of {in_words(queue)} were removed before they were read; the oldest message "
        f"is {there.start}. {_HOW_TO_GO_ON}"
    )


_HOW_TO_GO_ON = (
    "To go on with the messages that are left, set the option failOnDataLoss to false; to read removed messages from "
    "an archive, set the option archive"
)


# --- how much at once -----------------------------------------------------------------------------


def limited(start: Offsets, latest: Offsets, most: int) -> Offsets:
    """Return the offsets at which a micro-batch of at most ``most`` offsets ends.

    Each queue contributes in proportion to the messages that it has. If that leaves a queue out, each one contributes
    one, in turns if there are more queues than ``most``, and the rest is taken in proportion.
    """
    end = in_proportion(start, latest, most)
    if between(start, end).keys() == between(start, latest).keys():
        return end
    waiting = sorted(queue for queue, stop in latest.items() if stop > start.get(queue, 0))
    turn = sum(start.values()) % len(waiting) if len(waiting) > most else 0  # it grows by as many as a batch takes
    first = (waiting[turn:] + waiting[:turn])[:most]
    begun = dict(start) | {queue: start.get(queue, 0) + 1 for queue in first}
    return in_proportion(begun, latest, most - len(first))


def in_proportion(start: Offsets, latest: Offsets, most: int) -> Offsets:
    """Return the offsets at which a batch of at most ``most`` offsets ends, each queue in proportion to what it has.

    The queues with most messages are rounded up first.
    """
    waiting = {queue: stop - start.get(queue, 0) for queue, stop in latest.items()}
    total = sum(waiting.values())
    if total <= most:
        return latest
    shares = {queue: count * most // total for queue, count in waiting.items()}
    left = most - sum(shares.values())
    for queue in sorted(waiting, key=lambda queue: (-(waiting[queue] * most % total), queue))[:left]:
        shares[queue] += 1
    return {queue: start.get(queue, 0) + shares[queue] for queue in latest}


def count(ranges: Iterable[range]) -> int:
    """Return the number of messages in ``ranges``."""
    return sum(len(each) for each in ranges)


# --- where a read begins or ends ---------------------------------------------------------------


def _by_offsets(name: str, there: Ranges, point: Point, fail_on_data_loss: bool) -> Offsets:
    if point == "earliest":
        return {queue: known.start for queue, known in there.items()}
    if point == "latest":
        return {queue: known.stop for queue, known in there.items()}
    _checknamed(name, there, point, "an offset, -2 for the earliest or -1 for the latest,")
    return {
        queue: _checked(name, queue, point.get(queue, EARLIEST), known, fail_on_data_loss)
        for queue, known in there.items()
    }


def _checked(name: str, queue: MessageQueue, offset: int, known: range, fail_on_data_loss: bool) -> int:
    if offset in (EARLIEST, LATEST):
        return known.start if offset == EARLIEST else known.stop
    if known.start <= offset <= known.stop:
        return offset
    if fail_on_data_loss:
        raise DataLost(
            f"option {name}: {in_words(queue)} has the offsets {known.start} to {known.stop}, "
            f"not {offset}. {_HOW_TO_GO_ON}"
        )
    return min(max(offset, known.start), known.stop)


def _by_time(name: str, place: Place, there: Ranges, each: Mapping[MessageQueue, int], usual: int | None) -> Offsets:
    if usual is None:
        _checknamed(name, there, each, "a time")
    times = each if usual is None else dict.fromkeys(there, usual)
    return {queue: place.offset_by_time(queue, known, times.get(queue, 0)) for queue, known in there.items()}


def _checknamed(name: str, there: Ranges, given: Iterable[MessageQueue], what: str) -> None:
    missing = sorted(
        {queue for queue, known in there.items() if known.stop} - set(given)
    )  # an empty one may be missing
    unknown = sorted(set(given) - set(there))
    if missing or unknown:
        problem = f"does not name {named(missing)}" if missing else f"names {named(unknown)}, which is not selected"
        raise ValueError(f"option {name} {problem}: give {what} for each queue")


def named(queues: list[MessageQueue]) -> str:
    """Return at most five of these queues in words."""
    shown = ", ".join(in_words(queue) for queue in queues[:5])
    return shown if len(queues) <= 5 else f"{shown} and {len(queues) - 5} more"
