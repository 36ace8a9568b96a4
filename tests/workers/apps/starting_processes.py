"""An application that takes signals over when it is imported, and whose handler starts processes."""

import atexit
import os
import signal
import subprocess
import sys
from pathlib import Path

from rmqclient import App, ReceivedMessage

RECORD = Path(os.environ["RECORD"])

app = App()


def record(what: str) -> None:
    with RECORD.open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {what}\n")


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGINT, signal.SIG_DFL)


@app.on_startup
def begin() -> None:
    atexit.register(record, "atexit")


@app.handler("orders", group="billing")
def start(message: ReceivedMessage) -> None:
    word, _, argument = message.body.decode().partition(" ")
    record(f"began {word}")
    if word in ("die", "detach") and message.delivery_attempt == 1:
        child = subprocess.Popen(["sleep", "1000"], start_new_session=word == "detach")
        record(f"started {child.pid}")
        os._exit(9)
    elif word == "daemon":
        shell = ["sh", "-c", "sleep 1000 >/dev/null & echo $!"]
        started = subprocess.run(shell, start_new_session=True, stdout=subprocess.PIPE, text=True, check=True)
        record(f"started {started.stdout.strip()}")
    elif word == "interrupt":
        child = subprocess.Popen(["sleep", "1000"])
        child.send_signal(signal.SIGINT)
        record(f"ended {child.wait()}")
    elif word == "wait":
        while not Path(argument).exists():
            signal.sigtimedwait([], 0.02)
    record(f"done {word}")
