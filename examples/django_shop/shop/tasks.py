"""Tasks: functions that a view enqueues and a worker runs."""

from __future__ import annotations

from typing import Any

from examples.django_shop.shop.models import Order

try:
    from django.tasks import task
except ImportError:  # Django 5.2 has them in a package
    from django_tasks import task


@task(queue_name="receipts")
def write_receipt(number: int) -> str:
    """Write the receipt of an order, and return it."""
    order = Order.objects.get(pk=number)
    order.receipt = f"{order.count} x {order.item}"
    order.save(update_fields=["receipt"])
    return order.receipt


@task(takes_context=True)
def fail_at_first(context: Any, times: int) -> int:
    """Fail so many times, then return the number of the attempt."""
    if context.attempt <= times:
        raise ConnectionError("the printer is away")
    return int(context.attempt)


@task
async def shout(word: str) -> str:
    """Show that a coroutine is a task, too."""
    return word.upper()
