"""An S3 server on loopback: moto's, in a process of its own, which forgets all when it ends."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KEY, SECRET = "AKIATEST", "a/secret+of=tests"
BUCKET = "archives"


@dataclass(frozen=True)
class S3Server:
    """Where it listens, and what it was asked."""

    endpoint: str
    log: Path

    @property
    def options(self) -> dict[str, str]:
        """What a client needs beside ``s3://archives/...``."""
        return {"endpoint_override": self.endpoint, "scheme": "http", "access_key": KEY, "secret_key": SECRET}

    def requests(self) -> list[str]:
        """Return the requests so far, ``PUT /archives/...`` each."""
        return re.findall(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+ [^ ]+) HTTP', self.log.read_text(encoding="utf-8"))


@contextmanager
def s3_server(directory: Path, bucket: str = BUCKET) -> Iterator[S3Server]:
    """Run a server with an empty bucket; what it says goes to a file in ``directory``."""
    from pyarrow import fs  # noqa: PLC0415 - not every test of this package has it

    log = directory / "s3.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            server = S3Server(_endpoint(process, log), log)
            client = fs.S3FileSystem(allow_bucket_creation=True, region="us-east-1", **server.options)
            client.create_dir(bucket)
            yield server
        finally:
            process.terminate()


def _endpoint(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return host and port when it listens; it says so."""
    while process.poll() is None:
        if found := re.search(r"Running on http://(127\.0\.0\.1:[0-9]+)", log.read_text(encoding="utf-8")):
            return found[1]
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(f"the S3 server has ended: {log.read_text(encoding='utf-8')}")
