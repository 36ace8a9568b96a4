"""An application whose handler does nothing."""

from rmqclient import App, ReceivedMessage

app = App()


@app.handler("orders", group="billing")
def ignore(message: ReceivedMessage) -> None:
    """Handle nothing."""
