"""Models: what was ordered, and what was billed for it."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    item = models.CharField(max_length=50)
    count = models.IntegerField()
    receipt = models.TextField(default="")

    def __str__(self) -> str:
        return f"{self.count} {self.item}"


class Bill(models.Model):
    """What an order costs. An order that is billed twice has two."""

    order_number = models.BigIntegerField()
    cents = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.cents / 100:.2f}"
