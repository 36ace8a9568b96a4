"""Django's commands for the shop: ``python -m examples.django_shop.manage migrate``."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    """Run one command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
