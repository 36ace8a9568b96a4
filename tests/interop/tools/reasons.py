"""Reasons: lines that ``mqadmin`` prints on one server only, and why."""

from __future__ import annotations

from tests.interop.tools.comparison import Reason

_5 = "5.3"

REASONS: tuple[Reason, ...] = (
    Reason(
        "^(topicList|statsAll)",
        "BenchmarkTest|TRACE_TOPIC|TRANS_|rmq_sys_|SCHEDULE|wheel|SYNC_BROKER|REVIVE|CID_|CheckPoint",
        "Which topics of the system are there before they are used differs between 4.9, 5.x and this server.",
    ),
    Reason(
        "^(topicList|statsAll|consumerProgress)",
        "TOOLS_CONSUMER|ToolsTopic ToolsTopic",
        "5.x makes a retry topic for the group that the tools pull as.",
        _5,
    ),
    Reason(
        "^(topicList|statsAll)",
        "%RETRY%tools_other_group",
        "A group that has only offsets has a retry topic here, by which tools find it.",
    ),
    Reason("^(wipe|add)WritePerm", "OK, \\d+", "The topics of the system that are there count."),
    Reason(
        "^(brokerStatus|getBrokerConfig|getNamesrvConfig|clusterList)",
        "",
        "Figures and settings are those of the server; the tests of its room look at them.",
    ),
    Reason(
        "^updateBrokerConfig",
        "",
        "The settings of this server are options, and it says so; a broker takes any line without a word.",
    ),
    Reason(
        "^resetOffsetByTime .* #[23]|^resetOffsetByTime .* 0$",
        "",
        "4.9 moves no group without members, so its tool does that itself; this server moves it, as 5.x.",
        "4.9",
    ),
    Reason(
        "^brokerConsumeStats",
        "tools_other_group",
        "A broker does not tell of a group that has only offsets, and no settings.",
    ),
    Reason(
        "^consumerProgress -g",
        "%RETRY%tools_group",
        "Here a group has an offset in its retry topic from the first pull on.",
    ),
    Reason(
        "^consumerProgress -g .* #3$",
        "",
        "A group that is deleted without its offsets is still known by them; a broker knows it by its retry topic.",
    ),
    Reason(
        "^consumerProgress -g .* #",
        "Inflight|N/A",
        "5.x remembers how far a group pulled before it was moved; here nothing is in flight then.",
        _5,
    ),
    Reason(
        "^consumerProgress$",
        r"^tools_group 1 \S+ PUSH CLUSTERING \d+ 0$",
        "How many messages a second were consumed is a figure, which a broker takes every ten seconds.",
    ),
    Reason("^statsAll", "ToolsTopic", "A broker counts by the minute; this server tells what came until now."),
    Reason(
        "^(cloneGroupOffset|statsAll|topicList)",
        "tools_other_group|not exist",
        "5.x wants the group to be made first; 4.9 and this server do not.",
        _5,
    ),
    Reason(
        "^(queryMsg|printMsg|consumeMessage)",
        "(?i)properties[:=]",
        "5.x and this server keep the region and the trace switch with each message, and 4.9 does not; 5.x keeps WAIT.",
    ),
)
