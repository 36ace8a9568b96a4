"""Sends orders to the shop until its input ends; some are declined, broken or deadly. A child process."""

from __future__ import annotations

import json
import random
import select
import sys
import time

from rmqclient import Message, Producer

HOSTILE_KEY = "<script>document.title='owned'</script>"
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"


def main(root: str, per_second: float) -> None:
    draw = random.Random(7)
    begun, number = time.monotonic(), 0
    with Producer(root) as producer:
        while not select.select([sys.stdin], [], [], max(0.0, begun + number / per_second - time.monotonic()))[0]:
            number += 1
            kind = draw.choices(["paid", "declined", "broken", "deadly"], [980, 14, 5, 0.4])[0]
            order = {
                "order": f"A-{number}",
                "kind": kind,
                "total": draw.randrange(5, 400),
                "items": draw.randrange(1, 9),
            }
            if number % 500 == 0:
                order["note"] = HOSTILE
            keys = (f"A-{number}", HOSTILE_KEY) if "note" in order else (f"A-{number}",)
            producer.send(Message("orders", json.dumps(order).encode(), tags=kind, keys=keys))
            if number % 3 == 0:
                producer.send(Message("payments", json.dumps({"order": f"A-{number}"}).encode(), keys=(f"A-{number}",)))
            if number % 200 == 0:
                producer.send(Message("mails", b"thank you", keys=(f"A-{number}",)), delay=600 + number)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
