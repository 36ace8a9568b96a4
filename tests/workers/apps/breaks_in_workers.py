"""An application that the supervisor can import and a worker cannot."""

import multiprocess

from rmqclient import App, ReceivedMessage

if multiprocess.parent_process() is not None:
    raise RuntimeError("not in a worker")

app = App()


@app.handler("orders", group="billing")
def handle(message: ReceivedMessage) -> None:
    raise AssertionError(f"no worker boots to handle {message.message_id}")
