"""An application that only schedules; the function tells its process in the message, and in the file RECORD."""

import datetime
import os
from pathlib import Path

from rmqclient import App

RECORD = Path(os.environ["RECORD"])

app = App()


@app.schedule(
    every=datetime.timedelta(seconds=1), topic="reports", misfire_grace=datetime.timedelta(seconds=30), coalesce=False
)
def second(tick: datetime.datetime) -> str:
    with RECORD.open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {tick:%H:%M:%S}\n")
    return f"{os.getpid()} {tick:%H:%M:%S}"
