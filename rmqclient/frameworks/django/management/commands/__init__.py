"""Commands: ``manage.py rmq``."""
