"""The shop of the examples, set up in this process on a database of the tests' own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.frameworks.django.running import why_not

if TYPE_CHECKING:
    from rmqclient import App
    from rmqclient.testing.kit import Kit


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The application of the shop; its tables are there."""
    if reason := why_not():
        pytest.skip(reason)
    said = {
        "SHOP_DATA": str(tmp_path_factory.mktemp("shop")),
        "DJANGO_SETTINGS_MODULE": "examples.django_shop.settings",
    }
    os.environ |= said
    import django
    from django.core.management import call_command
    from django.db import connections

    django.setup()
    call_command("migrate", verbosity=0)
    from rmqclient.frameworks.django import app

    yield app
    connections.close_all()
    for name in said:
        del os.environ[name]


@pytest.fixture
def kit(shop: App, rmq: Callable[..., Kit]) -> Kit:
    """The shop under test, with empty tables."""
    from django.apps import apps

    for model in (*apps.get_app_config("rmq").get_models(), *apps.get_app_config("shop").get_models()):
        model.objects.all().delete()
    return rmq(shop)
