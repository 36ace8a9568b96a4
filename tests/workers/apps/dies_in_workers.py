"""An application that ends every worker process while it is imported there."""

import os

import multiprocess

from rmqclient import App, ReceivedMessage

if multiprocess.parent_process() is not None:
    os._exit(9)

app = App()


@app.handler("orders", group="billing")
def handle(message: ReceivedMessage) -> None:
    raise AssertionError(f"no worker lives to handle {message.message_id}")
