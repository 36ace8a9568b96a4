"""The tables of the shop, as the models say."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first tables."""

    initial = True

    dependencies = ()

    operations = [
        migrations.CreateModel(
            name="Bill",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("order_number", models.BigIntegerField()),
                ("cents", models.IntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("item", models.CharField(max_length=50)),
                ("count", models.IntegerField()),
                ("receipt", models.TextField(default="")),
            ],
        ),
    ]
