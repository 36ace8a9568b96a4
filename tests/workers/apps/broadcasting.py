"""An application whose every worker records every message in the file RECORD."""

import os

from rmqclient import App, ReceivedMessage

app = App()


@app.handler("orders", group="caches", broadcast=True)
def remember(message: ReceivedMessage) -> None:
    with open(os.environ["RECORD"], "a", encoding="utf-8") as file:  # noqa: PTH123 - one write, one line
        file.write(f"{os.getpid()} {message.body.decode()}\n")
