"""The application of the examples: it prints what it handles. The store is that of RMQ_STORE."""

import logging

from rmqclient import App, ReceivedMessage

app = App()
log = logging.getLogger("shop")


@app.handler("orders", group="billing")
def bill(message: ReceivedMessage) -> None:
    """Log one order."""
    log.info("billed %s", message.body.decode(errors="replace"))
