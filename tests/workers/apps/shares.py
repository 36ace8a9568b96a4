"""An application whose group shares its queues by functions of its own."""

from collections.abc import Sequence

from rmqclient import App, MessageQueue, ReceivedMessage
from rmqclient.allocation import nearby

app = App()


def last_takes_all(members: Sequence[str], queues: Sequence[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Give everything to the last one."""
    return {members[-1]: list(queues)}


@app.handler("orders", group="billing", allocation=last_takes_all)
def bill(message: ReceivedMessage) -> None:
    """Handle nothing."""


@app.handler("orders", group="stock", allocation=nearby(lambda _: "here", last_takes_all))
def count(message: ReceivedMessage) -> None:
    """Handle nothing."""
