"""Tools: ``mqadmin`` in one Java process, so that each command does not cost the start of a Java."""

from __future__ import annotations

import base64
import os
import selectors
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.rocketmq import TARGET, Java, RocketMQFailed

_PROGRAM = Path(__file__).parent / "Tools.java"
_COMMAND_S = 90.0
_SILENT = '<configuration><root level="OFF"/></configuration>'


class Tools:
    """A running ``mqadmin`` of one release, which asks one name server. A context manager."""

    def __init__(self, release: str, home: Path, name_server: str) -> None:
        conf = home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in ("logback_tools.xml", "rmq.tools.logback.xml"):  # of 4.9 and of 5.x
            (conf / name).write_text(_SILENT, encoding="utf-8")
        self._name_server = name_server
        *java, _, classpath, _ = Java(release, home).command("-")
        assert str(TARGET) in classpath
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *java, "-cp", classpath, _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home,  # consumerStatus writes files
            env={**os.environ, "HOME": str(home)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, *words: object) -> str:
        """Return what a command printed, its errors too. Raises RocketMQFailed when it does not end."""
        assert self._process.stdin is not None
        line = "\t".join(map(str, (*words, "-n", self._name_server)))
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        return base64.b64decode(self._line(str(words))).decode()

    def _line(self, what: str) -> bytes:
        output = self._process.stdout
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            if not selector.select(_COMMAND_S):
                raise RocketMQFailed(f"mqadmin did not end within {_COMMAND_S:.0f} s: {what}")
            line = output.readline()
        if not line:
            raise RocketMQFailed(f"mqadmin ended: {what}")
        return line
