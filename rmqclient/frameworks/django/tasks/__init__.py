"""Tasks: ``django.tasks`` over a store.

``backend`` sends them, ``runs`` runs them in a worker, ``records`` keeps what became of them; ``options`` says how, and
``api`` is Django's part.
"""
