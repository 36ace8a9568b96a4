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


BROKER_5 = r"5\.3\.3$"
"""Sessions with a broker of 5.3.3, whatever the client was."""

REASONS = (
    Reason(
        "Lite pulls of 5.x clients are answered as pulls; a broker of 4.9 does not know them.",
        codes=(361,),
        what="code",
        recorded="^3$",
    ),
    Reason(
        "A pull with a newer subscription waits for its heartbeat, and is answered by what it then finds.",
        codes=(11, 361),
        what="code",
        recorded="^25$",
    ),
    Reason(
        "A filter that cannot be read is refused; a broker sends everything.",
        codes=(11, 361),
        what="code",
        sessions="^probe",
        recorded="^0$",
        live="^23$",
    ),
    Reason(
        "Every port answers pulls; a broker does not answer them at its second port.",
        codes=(11,),
        what="code",
        sessions="^probe",
        recorded="^3$",
    ),
    Reason(
        "The probe sent a message to no queue in particular, which is a random one.",
        codes=(11,),
        sessions="^probe",
        recorded=r"^19$|b'x'",
    ),
    Reason(
        "The messages that were there before the recording began are not known; others stand in for them.",
        codes=(11, 361),
        what="messages",
        live="b'earlier'",
    ),
    Reason(
        "Of messages that were there before the recording began, the keys are not known.",
        codes=(12,),
        what="messages",
        sessions="^java-pull$|^mqadmin-messages",
    ),
    Reason(
        "The delayed message had come when the recorded client asked, and the replay asks at once.",
        codes=(11,),
        what="code",
        sessions="^cpp-pull$",
    ),
    Reason(
        "The server is a broker of 4.9: it does not tell of acting masters, which only 5.x has.",
        codes=(105, 106),
        what="body",
        recorded="enableActingMaster",
    ),
    Reason(
        "A broker of 5.x repeats the unique key of each message as transactionId; one of 4.9 does not.",
        codes=(10, 310, 320),
        what="fields",
        sessions=BROKER_5,
        recorded="transactionId",
    ),
    Reason(
        "A broker of 4.9 answers heartbeats without fields: a client then sends its whole heartbeat each time.",
        codes=(34,),
        what="fields",
        sessions=BROKER_5,
        recorded="IS_SUPPORT_HEART_BEAT_V2",
    ),
    Reason(
        "A broker of 4.9 does not tell the system flags of group and topic, which nobody sets.",
        codes=(11, 361),
        what="fields",
        sessions=BROKER_5,
        recorded="groupSysFlag",
    ),
    Reason(
        "A topic that was deleted at the broker has no route from then on: one process is broker and name server.",
        codes=(105,),
        what="code",
        sessions="go-admin",
        live="^17$",
    ),
    Reason(
        "The recorded broker was told to be busy; the server has no such switch unless it is busy.",
        codes=(310,),
        what="code",
        sessions="broker-busy",
        recorded="^2$",
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
    Reason(
        "A broker of 4.9 tells no transaction id for a message that is sent.",
        codes=(10, 310, 320),
        what="fields",
        recorded="transactionId",
    ),
    Reason(
        "A broker of 4.9 names neither the topic nor itself when it asks about a transaction.",
        codes=(39,),
        what="fields",
        recorded="bname.* topic",
    ),
    Reason(
        "A broker of 4.9 says 1 for names and numbers of queues that are refused, where 5.x says 29.",
        codes=(10, 310),
        what="code",
        recorded="^29$",
        live="^1$",
    ),
    Reason(
        "A message may be empty, as with a broker of 4.9; one of 5.x fails.",
        codes=(310,),
        sessions="^probe-5",
        what="code",
        recorded="^1$",
        live="^0$",
    ),
    Reason(
        "A message for no certain queue goes to a random one.",
        codes=(11,),
        sessions="^probe",
        what="messages",
        recorded="b'x'",
    ),
    Reason(
        "The broker of this recording was kept busy on purpose.",
        codes=(310,),
        sessions="^broker-busy$",
        what="code",
        recorded="^2$",
    ),
    Reason(
        "The topic of traces has one queue from the start, and the client of this recording was told of four.",
        codes=(310,),
        sessions="java-producer-trace",
        what="code",
        live="^1$",
    ),
    Reason(
        "Groups that were there before the session have no offsets in the new store.",
        codes=(208, 300),
        what="body",
        sessions="^mqadmin",
        live=r"'offsetTable': {}|'groupList': \[\]",
    ),
    Reason(
        "Messages that were there before the session are stood in for, and keys of them are not known.",
        codes=(11, 12),
        what="messages",
        sessions="^mqadmin-(messages|reset)",
    ),
    Reason("What came before the session does not count.", codes=(315,), what="code", sessions="^mqadmin", live="^1$"),
    Reason(
        "The server refuses a setting that it does not have; a broker takes any line without a word.",
        codes=(25,),
        what="code",
        recorded="^0$",
    ),
    Reason("Only the settings that mean something here are told.", codes=(319,), what="body"),
    Reason(
        "The server moves a group without members; a broker of 4.9 refuses, and its tool does it then.",
        codes=(222,),
        what="code",
        recorded="^206$",
        live="^0$",
    ),
    Reason(
        "A member that was moved is told by request 220, as by 4.9; 5.x answers its next pull with 21.",
        codes=(11,),
        what="code",
        sessions="mqadmin-reset-5",
        recorded="^21$",
    ),
    Reason(
        "A C++ client gets the list form of 220, and no other: 4.9 sends that form to all when a C++ tool asks.",
        codes=(220,),
        what="body",
        sessions="mqadmin-reset$",
    ),
    Reason(
        "The server holds a pull whose heartbeat has not come yet, where a broker makes the client try again.",
        codes=(11,),
        what="code",
        sessions="^mqadmin",
        recorded="^25$",
    ),
    Reason(
        "An empty queue has the offset 0, as in 4.9, and a commit makes its group; 5.x says that there is none.",
        codes=(14, 15),
        what="code",
        sessions=r"^mqadmin.*5\.3\.3$",
        recorded="^2[26]$",
    ),
    Reason(
        "A broker of 4.9 hands on the fields that it got, and no flags of group and topic.",
        codes=(309,),
        what="fields",
        sessions=BROKER_5,
        recorded="groupSysFlag",
    ),
    Reason("Nothing answers this request yet.", what="code", live="^3$"),
    Reason("No message makes a topic yet.", codes=(105,), what="code", live="^17$"),
    Reason("Nobody is told of anything yet.", what="missing"),
)


def reason_of(difference: Difference) -> str | None:
    """Return the sentence that explains a difference; None if there is none."""
    return next((reason.sentence for reason in REASONS if reason.explains(difference)), None)
