"""An application whose handler never gets a message, to measure an idle worker."""

from rmqclient import App, ReceivedMessage

app = App()


@app.handler("idle", group="idle")
def wait(message: ReceivedMessage) -> None:
    """No message is ever sent to this topic."""
