"""An application whose handler never gets a message, for what a worker costs that does nothing."""

from rmqclient import App, ReceivedMessage

app = App()


@app.handler("idle", group="idle")
def wait(message: ReceivedMessage) -> None:
    """Nobody sends to this topic."""
