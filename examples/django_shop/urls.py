"""Addresses of the shop."""

from __future__ import annotations

from django.urls import path

from examples.django_shop.shop import views

urlpatterns = [path("orders", views.orders), path("receipts/<str:task_id>", views.receipt)]
