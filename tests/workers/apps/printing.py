"""Prints each body, and then runs until it is killed; after "death" it does that itself."""

from __future__ import annotations

import os
import signal
import threading

from rmqclient import App, RetryPolicy, StoreConfig

app = App("store", config=StoreConfig.small())


@app.handler("orders", group="printing", retry=RetryPolicy(max_retries=0))
def show(body: str) -> None:
    print("printed", body)
    if body == "death":
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()
