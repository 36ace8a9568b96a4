"""An application whose handlers keep an order, and never return."""

import threading

from rmqclient import App, ReceivedMessage, RetryPolicy

app = App()


@app.handler("by_queue", group="hangs_by_queue", order="queue", retry=RetryPolicy(max_retries=1))
@app.handler("by_key", group="hangs_by_key", order="key", retry=RetryPolicy(max_retries=1))
def hang(message: ReceivedMessage) -> None:
    threading.Event().wait()
