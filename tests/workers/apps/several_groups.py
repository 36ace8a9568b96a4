"""An application of two groups, made of two, whose consumers have settings of their own."""

from rmqclient import App, ConsumerConfig, ReceivedMessage

stock = App()


@stock.handler("orders", group="stock")
def count(message: ReceivedMessage) -> None:
    """Handle nothing."""


app = App(consumer=ConsumerConfig(suspend_ms=12_300))
app.include(stock)


@app.handler("orders", group="billing", order="queue")
def bill(message: ReceivedMessage) -> None:
    """Fail, so that the queue is suspended."""
    raise ValueError("no price")
