"""Models: the tables of outbox, inbox and task results.

Outbox and inbox are those of :class:`rmqclient.Outbox` and :class:`rmqclient.Inbox`, which can work on them, too.
"""

from __future__ import annotations

from django.db import models


class OutboxMessage(models.Model):
    """A message that a transaction wrote, and whether it was sent (:mod:`rmqclient.databases.relay`)."""

    class State(models.IntegerChoices):
        """What became of it."""

        NEW = 0
        CLAIMED = 1
        SENT = 2
        REFUSED = 3

    id = models.BigAutoField(primary_key=True)
    unique_key = models.CharField(max_length=64, unique=True)
    topic = models.CharField(max_length=255)
    body = models.BinaryField()
    tags = models.TextField(null=True)
    keys = models.TextField()
    properties = models.TextField()
    flag = models.IntegerField()
    sharding_key = models.TextField(null=True)
    state = models.IntegerField(choices=State.choices, default=State.NEW)
    message_id = models.CharField(max_length=255, null=True)
    refusal = models.TextField(null=True)

    class Meta:
        db_table = "rmq_outbox"
        indexes = (models.Index(fields=["state", "id"], name="rmq_outbox_waiting"),)

    def __str__(self) -> str:
        return f"{self.topic} {self.unique_key} ({self.get_state_display()})"


class HandledMessage(models.Model):
    """A message that a group has handled."""

    pk = models.CompositePrimaryKey("group_name", "message_id")
    group_name = models.CharField(max_length=127)
    message_id = models.CharField(max_length=255)
    handled_at = models.BigIntegerField()

    class Meta:
        db_table = "rmq_inbox"
        indexes = (models.Index(fields=["group_name", "handled_at"], name="rmq_inbox_old"),)

    def __str__(self) -> str:
        return f"{self.group_name} {self.message_id}"


class TaskRecord(models.Model):
    """A task that was enqueued with ``results``, and what became of it."""

    id = models.CharField(max_length=64, primary_key=True)
    backend = models.CharField(max_length=255)
    task = models.CharField(max_length=255)
    queue_name = models.CharField(max_length=127)
    run_after = models.DateTimeField(null=True)
    args = models.JSONField()
    kwargs = models.JSONField()
    status = models.CharField(max_length=16)
    enqueued_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    last_attempted_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    errors = models.JSONField(default=list)
    worker_ids = models.JSONField(default=list)
    return_value = models.JSONField(null=True)

    class Meta:
        db_table = "rmq_task"
        indexes = (models.Index(fields=["finished_at"], name="rmq_task_finished"),)

    def __str__(self) -> str:
        return f"{self.task} {self.id} ({self.status})"
