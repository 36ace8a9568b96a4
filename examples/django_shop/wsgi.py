"""What a server of WSGI calls: ``gunicorn examples.django_shop.wsgi:application``."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
application = get_wsgi_application()
