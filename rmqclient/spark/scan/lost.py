"""Lost: what a read does with messages that are gone or damaged, and with bodies that cannot be decompressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmqclient.errors import DataLost
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.store.errors import BodyUnreadable
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


def on_lost(options: ReadOptions) -> Callable[[str], None]:
    """Return the handler of a sentence about lost messages: it raises DataLost, or logs the sentence."""
    return _fail if options.fail_on_data_loss else _pass_over


def _fail(what: str) -> None:
    raise DataLost(f"{what}. To skip such messages, set the option failOnDataLoss to false")


def _pass_over(what: str) -> None:
    _log.warning("%s; skipped because failOnDataLoss=false", what)


@contextmanager
def options_named() -> Iterator[None]:
    """Name the options in the error for a body that cannot be decompressed."""
    try:
        yield
    except BodyUnreadable as error:
        raise BodyUnreadable(
            f"{error}. To read null instead, set the option failOnUnreadableBody to false. The limit is the option "
            "maxOpenedBodyBytes"
        ) from error
