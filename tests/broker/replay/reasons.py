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
    topic: str = ""
    recorded: str = ""
    live: str = ""
    """Regular expressions that are searched for; an empty one matches all."""

    def explains(self, difference: Difference) -> bool:
        """Tell whether this is the reason of a difference."""
        return (
            (not self.codes or difference.code in self.codes)
            and self.what in {"", difference.what}
            and bool(re.search(self.sessions, difference.session))
            and bool(re.search(self.topic, difference.topic))
            and bool(re.search(self.recorded, difference.recorded))
            and bool(re.search(self.live, difference.live))
        )


BROKER_5 = r"5\.3\.3$"
"""Sessions with a broker of 5.3.3, whatever the client was."""

REASONS = (
    Reason(
        "A lock is asked for before it is freed by its connection: the replay sends both at once. The client is told.",
        codes=(41,),
        what="body",
        sessions="^java-push-orderly",
        live=r"'lockOKMQSet': \[\]",
    ),
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
        "Of the topics in which brokers keep their own things, those of transactions and of 5.x are not there.",
        codes=(105, 300),
        sessions="^mqadmin",
        topic="^RMQ_SYS_TRANS_|^rmq_sys_(REVIVE_LOG|SYNC_BROKER_MEMBER|wheel_timer)",
        live=r"^17$|'groupList': \[\]",
    ),
    Reason(
        "A broker of 4.9 does not tell how far a group has pulled, beside how far it has committed.",
        codes=(208,),
        what="body",
        sessions=BROKER_5,
        recorded="pullOffset",
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
    Reason(
        "Only the settings that mean something here are told.",
        codes=(319,),
        what="body",
        sessions="^mqadmin-cluster",
        live=r"^\['clusterTest', 'kvConfigPath', 'listenPort', 'orderMessageEnable'\]$",
    ),
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
    Reason(
        "The topic of traces has one queue from the start, as with traceTopicEnable; the recorded one was made later.",
        codes=(310,),
        sessions="java-producer-trace",
        live="^1$",
    ),
    Reason(
        "POP is not answered: code 3 says so, as a broker of 4.9 does.",
        codes=(200050, 200051, 400, 401),
        what="code",
        live="^3$",
    ),
    Reason(
        "A request that only 5.x has is not answered: code 3 says so, as a broker of 4.9 does.",
        codes=(907, 2003, 3005),
        what="code",
        live="^3$",
    ),
    Reason(
        "Lite pulls (361) of 5.x clients are answered, where a broker of 4.9 refuses them and is pulled from with 11.",
        codes=(361,),
        what="code",
        recorded="^3$",
    ),
    Reason(
        "A group that has no offset in a queue begins at 0 there, as at a broker of 4.9; one of 5.x says 22.",
        codes=(14,),
        what="code",
        sessions=BROKER_5,
        recorded="^22$",
        live="^0$",
    ),
    Reason(
        "A position that a queue does not have is refused; the Node client commits -1, and goes on when it is refused.",
        codes=(15,),
        what="code",
        sessions="node-push-consumer",
    ),
    Reason(
        "A commit is refused when the group was moved meanwhile: a reset is not undone by a late commit.",
        codes=(15,),
        what="code",
        sessions="go-push-tags|mqadmin",
        live="^1$",
    ),
    Reason(
        "A pull with a newer subscription than the heartbeats waits for the next one, and is not refused (25) at once.",
        codes=(11, 361),
        what="code",
        recorded="^25$",
    ),
    Reason(
        "A lock goes to the next owner when the last one has given the queue up, which it is told of in two steps.",
        codes=(41,),
        what="body",
        sessions="java-push-orderly|^probe",
    ),
    Reason(
        "Two members left in one moment, and whether the one hears of the other is chance.",
        codes=(40,),
        what="missing",
        sessions="java-broadcast|^probe",
    ),
    Reason(
        "A pull whose own filter cannot be read is refused with 23, where a real broker delivers every message.",
        codes=(11,),
        what="code",
        sessions="^probe",
        live="^23$",
    ),
    Reason(
        "A message of the probe has no queue, so the server chooses one, which may be another than the recorded one.",
        codes=(11,),
        sessions="^probe",
        recorded="probe_|^19$",
    ),
    Reason(
        "A commit in a topic that is not there is refused, where a real broker keeps it for good.",
        codes=(15,),
        what="code",
        sessions="^probe",
        live="^17$",
    ),
    Reason(
        "A group without members can be reset: its offsets are moved.",
        codes=(222,),
        what="code",
        live="^0$",
    ),
    Reason(
        "One port is the name server and the broker: a pull that was sent to the name server is answered.",
        codes=(11,),
        what="code",
        sessions="^probe",
        recorded="^3$",
    ),
    Reason(
        "A probe's numbers and names are refused with the codes of 4.9, where 5.x says 29.",
        codes=(11, 17, 215),
        what="code",
        sessions="^probe-5",
        recorded="^29$",
        live="^1$",
    ),
    Reason(
        "One port is the name server and the broker: a heartbeat to the name server is read, and refused.",
        codes=(34,),
        what="code",
        sessions="^probe-5",
        recorded="^3$",
        live="^1$",
    ),
    Reason(
        "The first heartbeat of a group makes its retry topic, and may do so before the replay asks for its route.",
        codes=(105,),
        what="code",
        sessions="^mqadmin-",
        topic="^%RETRY%",
        recorded="^17$",
        live="^0$",
    ),
    Reason(
        "The repliers of this recording had been a group before the session, which the store of the replay has not.",
        codes=(105, 11),
        what="code",
        sessions=r"^java-request-reply.*5\.3\.3$",
    ),
)


def reason_of(difference: Difference) -> str | None:
    """Return the sentence that explains a difference; None if there is none."""
    return next((reason.sentence for reason in REASONS if reason.explains(difference)), None)
