"""Apps: what Django does when it has loaded the models of a project: it finds handlers and tasks."""

from __future__ import annotations

import importlib.util

from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from rmqclient.frameworks.django.settings import given


class RmqConfig(AppConfig):
    """The app ``rmq``."""

    name = "rmqclient.frameworks.django"
    label = "rmq"
    verbose_name = "Message queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register checks, handlers of the project, the queues of its tasks, and the relay of its outbox."""
        from rmqclient.frameworks.django.application import app

        if given("OUTBOX") is not None:
            from rmqclient.frameworks.django.outboxes import relaying

            app.lifespan(relaying)
        autodiscover_modules(given("HANDLERS", "handlers"))
        if _has_tasks():
            self._take_tasks()

    @staticmethod
    def _take_tasks() -> None:
        from rmqclient.frameworks.django.application import app
        from rmqclient.frameworks.django.task_api import task_backends
        from rmqclient.frameworks.django.task_backend import RmqBackend

        taken: set[tuple[str, str]] = set()
        for backend in task_backends.all():
            if isinstance(backend, RmqBackend):
                handlers = {(each.topic, each.group): each for each in backend.handlers()}
                app.handlers += [each for place, each in handlers.items() if place not in taken]
                taken |= handlers.keys()  # backends of one group share its dead letters


def _has_tasks() -> bool:
    names = ("django.tasks", "django_tasks")
    return bool(getattr(settings, "TASKS", None)) and any(importlib.util.find_spec(name) for name in names)
