"""An application whose messages say what their handler does; it writes what happened to the file RECORD.

``wait <path>`` returns when the file exists, ``exit`` ends the process and ``hang`` never returns, both the first time
only; ``die`` ends it every time; anything else is just recorded.
"""

import os
import sys
import threading
from pathlib import Path

from rmqclient import App, ReceivedMessage

RECORD = Path(os.environ["RECORD"])

app = App()


@app.handler("orders", group="billing", threads=2)
def obey(message: ReceivedMessage) -> None:
    word, _, argument = message.body.decode().partition(" ")
    record(f"began {word}")
    if word == "wait":
        wait_for(Path(argument))
    elif (word == "exit" and is_first("exit")) or word == "die":
        os._exit(9)
    elif word == "hang" and is_first("hang"):
        never_return()
    elif word == "modules":
        record(f"modules {' '.join(sorted(sys.modules))}")
    record(f"done {word}")


def record(what: str) -> None:
    with RECORD.open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {what}\n")


def is_first(word: str) -> bool:
    """Whether no process was here before with this word."""
    try:
        RECORD.with_name(f"{RECORD.name} {word}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def wait_for(path: Path) -> None:
    while not path.exists():
        threading.Event().wait(0.02)


def never_return() -> None:
    threading.Event().wait()
