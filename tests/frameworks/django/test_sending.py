"""Sending and handling in the transactions of Django, and the connections of handlers."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest

from rmqclient import App, HandlerCall, Message, ReceivedMessage
from rmqclient.testing.kit import Kit
from tests.frameworks.django.running import until, why_not

if reason := why_not():
    pytest.skip(reason, allow_module_level=True)


def received(kit: Kit) -> ReceivedMessage:
    """Return a message of the topic that bills orders."""
    kit.send("orders", {"number": 1, "item": "apples", "count": 2})
    (message,) = kit.sent("orders")
    return message


@pytest.mark.guarantee("G67")
def test_a_message_of_the_outbox_goes_with_its_transaction(kit: Kit) -> None:
    from django.db import transaction

    from rmqclient.frameworks.django import outbox
    from rmqclient.frameworks.django.models import OutboxMessage

    with suppress(ZeroDivisionError), transaction.atomic():
        outbox.add(Message("news", b"never"))
        raise ZeroDivisionError
    with transaction.atomic():
        key = outbox.add(Message("news", {"a": 1}, tags="t"), "c4")
    with kit.running():
        until(lambda: OutboxMessage.objects.filter(state=2).exists())
    (sent,) = kit.assert_sent("news", times=1)
    assert (sent.body, sent.tags, sent.keys) == (b'{"a":1}', "t", (key,))
    assert (outbox.forget_sent(), OutboxMessage.objects.count()) == (1, 0)
    with pytest.raises(ValueError, match=r"write `with transaction.atomic\(\):`"):
        outbox.add(Message("news", b"whatever happens"))


@pytest.mark.guarantee("G106")
def test_a_text_that_is_not_utf8_is_refused_alone(kit: Kit) -> None:
    from django.db import connection, transaction

    from rmqclient.frameworks.django import outbox
    from rmqclient.frameworks.django.models import OutboxMessage

    with transaction.atomic():
        outbox.add(Message("news", b"bad"))
        with connection.cursor() as cursor:
            cursor.execute("UPDATE rmq_outbox SET tags = CAST(x'ff31' AS TEXT)")
        outbox.add(Message("news", b"good"))
    with kit.running():
        until(lambda: OutboxMessage.objects.filter(state=2).exists())
    (sent,) = kit.assert_sent("news", times=1)
    assert sent.body == b"good"
    assert OutboxMessage.objects.filter(state=3).count() == 1


def test_a_message_may_be_sent_after_the_commit(kit: Kit) -> None:
    from django.db import transaction

    from rmqclient.errors import MessageRejected
    from rmqclient.frameworks.django import send_on_commit

    with suppress(ZeroDivisionError), transaction.atomic():
        send_on_commit(Message("news", b"never"))
        raise ZeroDivisionError
    with transaction.atomic():
        key = send_on_commit(Message("news", b"then"), delay=timedelta(hours=1))
        kit.refute_sent("news")
        with pytest.raises(MessageRejected):
            send_on_commit(Message("news", object()))
    (sent,) = kit.assert_sent("news", times=1)
    assert (sent.body, sent.keys) == (b"then", (key,))


@pytest.mark.guarantee("G68")
def test_an_inbox_changes_the_database_once_for_a_message(kit: Kit) -> None:
    from django.db import IntegrityError, transaction

    from examples.django_shop.shop.models import Bill
    from rmqclient.frameworks.django import Inbox

    inbox, message = Inbox("other"), received(kit)
    with suppress(ZeroDivisionError), inbox.once(message) as is_first:
        assert is_first
        Bill.objects.create(order_number=1, cents=1)
        raise ZeroDivisionError
    assert not Bill.objects.exists()
    for expected in (True, False):
        with inbox.once(message) as is_first:
            assert is_first is expected
            if is_first:
                Bill.objects.create(order_number=1, cents=1)
    assert Bill.objects.count() == 1
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"), inbox.once(message):
        pytest.fail("its end would not commit")
    with pytest.raises(ValueError, match="is in no transaction"):
        inbox.add(message)
    refused = pytest.raises(RuntimeError, match="can only roll back")
    with refused, inbox.once(message, key="another"), suppress(IntegrityError), transaction.atomic(savepoint=False):
        raise IntegrityError
    assert inbox.forget_before(datetime.now(UTC) + timedelta(minutes=1)) == 1


def test_the_shop_bills_an_order_once_however_often_its_message_comes(kit: Kit) -> None:
    from examples.django_shop.shop.handlers import Ordered, bill
    from examples.django_shop.shop.models import Bill

    message = received(kit)
    kit.drain()
    bill(Ordered(1, "apples", 2), message)
    assert [each.cents for each in Bill.objects.all()] == [100]


def test_a_handler_leaves_no_old_connection_behind(shop: App) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connection

    from rmqclient.frameworks.django.application import fresh_connections

    handler = next(each for each in shop.handlers if each.topic == "orders")

    def is_open() -> bool:
        connection.ensure_connection()
        return connection.connection is not None

    with contextmanager(fresh_connections)(HandlerCall(handler, [])):
        assert is_open()
    assert connection.connection is None

    mail = App("./nowhere")

    @mail.handler("mail", group="mail")
    async def write(body: str) -> None: ...

    async def call() -> bool:
        with contextmanager(fresh_connections)(HandlerCall(mail.handlers[0], [])):
            assert await sync_to_async(is_open)()
        await asyncio.sleep(0)  # it is closed by a task, in the thread that opened it
        return bool(await sync_to_async(lambda: connection.connection is None)())

    assert asyncio.run(call())


def test_the_migrations_make_what_the_models_say(shop: App) -> None:
    from django.core.management import call_command

    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ([], "is not a dict"),
        ({"STOER": "x"}, "use STORE"),
        ({"STORE": "x", "OUTBOX": "other"}, "names no database"),
        ({}, "no store is named"),
    ],
)
def test_wrong_settings_are_told(shop: App, monkeypatch: pytest.MonkeyPatch, settings: object, problem: str) -> None:
    from django.conf import settings as said

    from rmqclient.frameworks.django.settings import check_settings

    monkeypatch.setattr(said, "RMQ", settings)
    monkeypatch.delenv("RMQ_STORE", raising=False)
    assert problem in " ".join(f"{each.msg}: {each.hint}" for each in check_settings())


def test_a_worker_does_not_start_with_wrong_settings(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.conf import settings
    from django.core.management import call_command
    from django.core.management.base import SystemCheckError

    monkeypatch.setattr(settings, "RMQ", {"STOER": "x"})
    with pytest.raises(SystemCheckError, match="use STORE"):
        call_command("rmq", "run")


def test_the_package_offers_its_names_and_no_others(shop: App) -> None:
    from rmqclient.frameworks import django

    assert all(getattr(django, name).__doc__ for name in django.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        django.nothing  # noqa: B018
