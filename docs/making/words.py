"""Words that people search for, and the page that answers them.

Each word or phrase becomes an entry of the index, which the search ranks first, and a keyword of its page. A page that
has the word in its title needs no entry here.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

WORDS = {
    "docs/start/tutorial": "getting started, quickstart, install, example",
    "docs/start/sending": "publish, enqueue, producer",
    "docs/start/faq": "FAQ, questions, result backend, rate limit, throttle, priority, chain, workflow, chord, canvas",
    "docs/start/when-not": "alternatives, Windows, macOS",
    "docs/migrate/README": "broker, terms, comparison",
    "docs/guide/handlers": "concurrency, threads, parallel, asyncio, coroutines, ordering, consumer",
    "docs/handling/in-process": "gevent, eventlet, notebook, fork, web process",
    "docs/handling/dependencies": "middleware, dependency injection",
    "docs/handling/development": "reload, debugger",
    "docs/handling/steps": "approval, saga, durable execution",
    "docs/guide/retry": "retry, backoff, retries, time limit, timeout, hang, dead letter queue, DLQ, poison message",
    "docs/guide/idempotence": "deduplicate, deduplication, dedupe, idempotent, idempotency, exactly once, unique",
    "docs/guide/requests": "result, RPC, reply",
    "docs/guide/timer": "delay, countdown, eta, cancel, revoke, postpone",
    "docs/guide/cron": "cron, periodic, beat, scheduler",
    "docs/explain/recovery": "crash, kill, power cut, durability",
    "docs/operate/deploy": "Kubernetes, systemd, probe, permissions, autoscaling, scaling workers",
    "docs/operate/docker": "Docker, container, compose, Podman, Dockerfile",
    "docs/operate/upgrade": "upgrade, update, rolling, downgrade",
    "docs/operate/backup": "backup, restore, snapshot",
    "docs/operate/disk": "retention, TTL, expire, disk full",
    "docs/operate/metrics": "Prometheus, Grafana, monitoring, alert",
    "docs/operate/dashboard": "Flower, web interface, admin",
    "docs/operate/replication": "failover, high availability, standby",
    "docs/reference/limits": "limits and sizes, limits, sizes, maximum, too large, quota",
    "docs/reference/settings": "configuration",
    "docs/serve/safety": "authentication, TLS, access keys, ACL",
}


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx call this module for each page that it has read."""
    app.connect("doctree-read", _add_words)
    return {"parallel_read_safe": True}


def _add_words(app: Sphinx, doctree: nodes.document) -> None:
    words = WORDS.get(app.env.current_document.docname)
    if words is None:
        return
    target = doctree.next_node(nodes.section)
    assert target is not None, "a page has a title"
    entries: list[Any] = [("single", word, target["ids"][0], "main", None) for word in words.split(", ")]
    keywords = nodes.meta(name="keywords", content=words.replace(" ", ", ").replace(",,", ","))
    doctree.insert(0, [addnodes.index(entries=entries), keywords])
