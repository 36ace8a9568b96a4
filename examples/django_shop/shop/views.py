"""Views: an order, its message and its receipt are one transaction."""

from __future__ import annotations

import json

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from examples.django_shop.shop.models import Bill, Order
from examples.django_shop.shop.tasks import write_receipt
from rmqclient import Message
from rmqclient.frameworks.django import outbox


@csrf_exempt
def orders(request: HttpRequest) -> HttpResponse:
    """Take an order, or list what was ordered and billed."""
    if request.method != "POST":
        bills = dict(Bill.objects.values_list("order_number", "cents"))
        found = Order.objects.order_by("pk").values("pk", "item", "count", "receipt")
        return JsonResponse({"orders": [{**each, "cents": bills.get(each["pk"])} for each in found]})
    wanted = json.loads(request.body)
    try:
        with transaction.atomic():
            order = Order.objects.create(item=wanted["item"], count=wanted["count"])
            outbox.add(Message("orders", {"number": order.pk, "item": order.item, "count": order.count}))
            result = write_receipt.enqueue(order.pk)
            if order.count < 1:
                raise ValueError("nothing was ordered")
    except ValueError as error:
        return JsonResponse({"error": str(error)}, status=400)
    return JsonResponse({"number": order.pk, "task": result.id}, status=201)


def receipt(_request: HttpRequest, task_id: str) -> HttpResponse:
    """Show what became of the task that writes a receipt."""
    result = write_receipt.get_result(task_id)
    return JsonResponse({"status": result.status, "receipt": result.return_value if result.is_finished else None})
