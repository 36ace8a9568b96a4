"""Settings of the shop. Its data lie in the directory that ``SHOP_DATA`` names, ``./shop-data`` without it.

``SHOP_POSTGRESQL`` is the directory of the socket of a PostgreSQL server, which then takes the place of SQLite;
``SHOP_MARIADB`` is the socket of a MariaDB server, which is reached by PyMySQL.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqclient import RetryPolicy

DATA = Path(os.environ.get("SHOP_DATA", "shop-data")).absolute()
DATA.mkdir(parents=True, exist_ok=True)

SECRET_KEY = "an example has no secrets"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "examples.django_shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = ["rmqclient.frameworks.django", "examples.django_shop.shop"]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATA / "shop.db",
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}
if "SHOP_POSTGRESQL" in os.environ:
    DATABASES["default"] = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["SHOP_POSTGRESQL"],
        "USER": "tests",
        "NAME": "postgres",
    }
if "SHOP_MARIADB" in os.environ:
    import pymysql

    pymysql.version_info = (2, 2, 1, "final", 0)  # of mysqlclient, which Django asks for
    pymysql.install_as_MySQLdb()
    DATABASES["default"] = {
        "ENGINE": "django.db.backends.mysql",
        "HOST": os.environ["SHOP_MARIADB"],
        "USER": "root",
        "NAME": "shop",
        "OPTIONS": {"charset": "utf8mb4"},
    }

RMQ = {"STORE": DATA / "store", "OUTBOX": "default"}

TASKS = {
    "default": {
        "BACKEND": "rmqclient.frameworks.django.RmqBackend",
        "QUEUES": ["default", "receipts"],
        "OPTIONS": {"threads": 2, "results": True, "retry": RetryPolicy(max_retries=3, delays=(0.2,))},
    }
}
