"""An application that can be imported when :mod:`tests.frameworks.noted` has begun."""

from __future__ import annotations

from rmqclient import App
from tests.frameworks import noted

if noted.begun != ["begun"]:
    raise RuntimeError("nothing has begun")

app = App()


@app.handler("orders", group="billing")
def handle(body: str) -> None:
    """Do nothing."""
