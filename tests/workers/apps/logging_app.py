"""An application whose handler logs."""

import logging

from rmqclient import App, ReceivedMessage

app = App()
log = logging.getLogger("shop")


@app.handler("orders", group="billing")
def handle(message: ReceivedMessage) -> None:
    if message.body == b"bad":
        log.warning("bad luck")
        raise ValueError("bad luck")
    log.info("handled %s", message.body.decode(), extra={"order": 7})
