"""A local member of a group: prints each message as it comes, until standard input ends.

``python -m tests.interop.serve.local_member DIRECTORY GROUP TOPIC``
"""

from __future__ import annotations

import sys
import time

from rmqclient import App, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer


def main(place: str, group: str, topic: str) -> None:
    """Handle messages until the parent ends or lets go."""
    app = App(place)

    @app.handler(topic, group=group, threads=4)
    def handle(message: ReceivedMessage) -> None:
        place = f'"queue_id":{message.queue_id},"queue_offset":{message.queue_offset},"at_ms":{time.time() * 1000}'
        print(f'{{"kind":"message","body":"{message.body.decode()}",{place}}}\n', end="", flush=True)

    consumer = PushConsumer(place, app.handlers)
    consumer.start()
    print('{"kind":"ready"}', flush=True)
    sys.stdin.read()
    consumer.stop_taking()
    consumer.drain(30)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
