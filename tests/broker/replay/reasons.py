"""Reasons: what our server answers in another way than the recorded brokers, and why. Without a reason a test fails."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.broker.replay.comparison import Difference


@dataclass(frozen=True, slots=True)
class Reason:
    """A sentence, and the differences that it explains: those that match everything that is given here."""

    sentence: str
    codes: tuple[int, ...] = ()
    """Of the requests; none for all."""
    what: str = ""
    sessions: str = ""
    recorded: str = ""
    live: str = ""
    """Regular expressions that are searched for; an empty one matches all."""

    def explains(self, difference: Difference) -> bool:
        """Tell whether this is the reason of a difference."""
        return (
            (not self.codes or difference.code in self.codes)
            and self.what in {"", difference.what}
            and bool(re.search(self.sessions, difference.session))
            and bool(re.search(self.recorded, difference.recorded))
            and bool(re.search(self.live, difference.live))
        )


REASONS = (
    Reason(
        "The server is a broker of 4.9: it does not tell of acting masters, which only 5.x has.",
        codes=(105, 106),
        what="body",
        recorded="enableActingMaster",
    ),
    Reason(
        "One port is the name server and the broker: a question that only the one answers is answered everywhere.",
        codes=(105,),
        sessions="^probe",
        what="code",
        recorded="^3$",
    ),
    Reason(
        "The topic of traces is there from the start, so that tracing clients need not wait for their first trace.",
        codes=(105,),
        sessions="java-producer-trace",
        recorded="^17$",
    ),
    Reason("Nothing answers this request yet.", what="code", live="^3$"),
    Reason("No message makes a topic yet.", codes=(105,), what="code", live="^17$"),
    Reason("Nobody is told of anything yet.", what="missing"),
)


def reason_of(difference: Difference) -> str | None:
    """Return the sentence that explains a difference; None if there is none."""
    return next((reason.sentence for reason in REASONS if reason.explains(difference)), None)
