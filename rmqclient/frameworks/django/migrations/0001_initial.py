"""The tables of outbox, inbox and task results, as the models say."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first tables."""

    initial = True

    dependencies = ()

    operations = [
        migrations.CreateModel(
            name="HandledMessage",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_name", "message_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("group_name", models.CharField(max_length=127)),
                ("message_id", models.CharField(max_length=255)),
                ("handled_at", models.BigIntegerField()),
            ],
            options={
                "db_table": "rmq_inbox",
                "indexes": [models.Index(fields=["group_name", "handled_at"], name="rmq_inbox_old")],
            },
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("unique_key", models.CharField(max_length=64, unique=True)),
                ("topic", models.CharField(max_length=255)),
                ("body", models.BinaryField()),
                ("tags", models.TextField(null=True)),
                ("keys", models.TextField()),
                ("properties", models.TextField()),
                ("flag", models.IntegerField()),
                ("sharding_key", models.TextField(null=True)),
                (
                    "state",
                    models.IntegerField(choices=[(0, "New"), (1, "Claimed"), (2, "Sent"), (3, "Refused")], default=0),
                ),
                ("message_id", models.CharField(max_length=255, null=True)),
                ("refusal", models.TextField(null=True)),
            ],
            options={
                "db_table": "rmq_outbox",
                "indexes": [models.Index(fields=["state", "id"], name="rmq_outbox_waiting")],
            },
        ),
        migrations.CreateModel(
            name="TaskRecord",
            fields=[
                ("id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("backend", models.CharField(max_length=255)),
                ("task", models.CharField(max_length=255)),
                ("queue_name", models.CharField(max_length=127)),
                ("run_after", models.DateTimeField(null=True)),
                ("args", models.JSONField()),
                ("kwargs", models.JSONField()),
                ("status", models.CharField(max_length=16)),
                ("enqueued_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("last_attempted_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("errors", models.JSONField(default=list)),
                ("worker_ids", models.JSONField(default=list)),
                ("return_value", models.JSONField(null=True)),
            ],
            options={
                "db_table": "rmq_task",
                "indexes": [models.Index(fields=["finished_at"], name="rmq_task_finished")],
            },
        ),
    ]
