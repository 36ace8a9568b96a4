"""Topics: how much comes in, who consumes it, and the last messages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.desk.forms import asked
from rmqclient.dashboard.looking.bodies import brief
from rmqclient.dashboard.looking.search import Search, search
from rmqclient.names import is_of_application
from rmqclient.store.observe.summary import group_of, state_of

_SHOWN = 50
_LAST_SHOWN = 50


def show_all(request: Request) -> Response:
    """Answer the list of topics, those where most comes in first.

    ``?q=`` selects by a part of the name, ``?system=1`` shows internal ones, too, ``?all=1`` more than fifty.
    """
    desk = desk_of(request)
    desk.live.begin()
    part, system = asked(request, "q"), bool(asked(request, "system"))
    with desk.admin() as admin:
        known = [each for each in admin.topics() if system or is_of_application(each.topic)]
    latest = desk.live.latest()
    with desk.reading() as reading:
        groups: dict[str, set[str]] = {}
        for each in reading.group_queues():
            groups.setdefault(each.queue.topic, set()).add(group_of(each.group))
    rates = latest.topic_rates if latest else {}
    found = [each for each in known if part.lower() in each.topic.lower()]
    found.sort(key=lambda each: (-bool(rates.get(each.topic)), each.topic))
    shown = found if asked(request, "all") else found[:_SHOWN]
    return desk.page(
        request,
        "topics/all.html",
        topics=shown,
        known=len(known),
        hidden=len(known) - len(found),
        more=len(found) - len(shown),
        rates=rates,
        groups=groups,
        part=part,
        system=system,
    )


def show_one(request: Request) -> Response:
    """Answer the page of one topic. Raises UnknownTopic."""
    desk = desk_of(request)
    name = request.path_params["topic"]
    with desk.admin() as admin:
        info = admin.topic(name)
    latest = desk.live.latest()
    lag: dict[str, int] = {}
    states: dict[str, list[str]] = {}
    with desk.reading() as reading:
        for each in reading.group_queues():
            if each.queue.topic == name:
                group = group_of(each.group)
                lag[group] = lag.get(group, 0) + each.lag
                states.setdefault(group, []).append(state_of(each))
    last = search(desk.backend(), Search(topic=name, limit=_LAST_SHOWN)).messages
    return desk.page(
        request,
        "topics/one.html",
        info=info,
        rate=latest.topic_rates.get(name, 0.0) if latest else None,
        lag=lag,
        states={group: sorted(set(each)) for group, each in states.items()},
        last=[(message, brief(message)) for message in last],
    )


ROUTES = [Route("/topics", show_all), Route("/topics/{topic}", show_one)]
