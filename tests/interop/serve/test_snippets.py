"""The programs of docs/serve/clients.md run as they stand there, each against a server of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.testing import Server, serve
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, SPRING, TARGET, TOP, why_not

PAGE = (TOP / "docs" / "serve" / "clients.md").read_text(encoding="utf-8")
CLIENTS = Path(__file__).parents[1] / "clients"
PROGRAM_S = 120.0
BUILD_S = 900.0
"""The first build of the Go client compiles all of it."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server for all programs, whose topics and groups have names of their own."""
    with serve() as server:
        yield server


def program(heading: str, language: str) -> str:
    """Return the program below a heading of the page."""
    below = PAGE.partition(f"\n## {heading}\n")[2]
    found = re.search(rf"^```{language}\n(.*?)^```$", below, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{heading} has no {language}"
    return found[1]


def printed(command: list[object], directory: Path, tries: int = 1) -> str:
    """Run a program to its end and return what it printed. Fails with that, too, when it does not end.

    One that gives up when the host is busy, as its page says, is started again, ``tries`` times in all.
    """
    end, text = _run(list(map(str, command)), directory)
    if end != "ended with 0" and tries > 1:
        return printed(command, directory, tries - 1)
    assert end == "ended with 0", f"{command[0]} {end}: {text[-6000:]}"
    return text


def _run(command: list[str], directory: Path) -> tuple[str, str]:
    """Return how a program ended, and what it printed."""
    written, environment = directory / "printed", os.environ | {"HOME": str(directory)}
    with written.open("w+b") as output:
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=PROGRAM_S,
                check=False,
            )
            end = f"ended with {done.returncode}"
        except subprocess.TimeoutExpired:
            end = f"did not end within {PROGRAM_S:g} s"
    return end, written.read_text(encoding="utf-8", errors="replace")


def needs(*commands: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Skip a test where a command is missing."""
    missing = [command for command in commands if shutil.which(command) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not here: {', '.join(missing)}")


def class_path(variant: str) -> str:
    """Return what Maven fetched."""
    return (TARGET / variant / "classpath").read_text(encoding="utf-8").strip()


@pytest.mark.skipif(bool(reason := why_not(BROKER_4_9_7, BROKER_5_3_3)), reason=reason)
@pytest.mark.parametrize("variant", [BROKER_4_9_7, BROKER_5_3_3])
def test_java(variant: str, server: Server, tmp_path: Path) -> None:
    source = tmp_path / "Orders.java"
    source.write_text(program("Java", "java").replace("orders-java", f"orders-{variant.replace('.', '-')}"), "utf-8")
    output = printed(["java", f"-Duser.home={tmp_path}", "-cp", class_path(variant), source, server.address], tmp_path)
    assert "received from Java" in output


@pytest.mark.skipif(bool(reason := why_not(SPRING)), reason=reason)
def test_spring(server: Server, tmp_path: Path) -> None:
    source = tmp_path / "shop" / "Shop.java"
    source.parent.mkdir()
    source.write_text(program("Spring", "java"), "utf-8")
    printed(["javac", "-cp", class_path(SPRING), "-d", tmp_path / "classes", source], tmp_path)
    command = ["java", f"-Duser.home={tmp_path}", "-cp", f"{tmp_path / 'classes'}:{class_path(SPRING)}", "shop.Shop"]
    settings = [f"--rocketmq.name-server={server.address}", "--rocketmq.producer.group=checkout"]
    assert "received from Spring" in printed([*command, *settings], tmp_path)


@needs("go")
def test_go(server: Server, tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copy(CLIENTS / "go" / name, tmp_path)
    (tmp_path / "main.go").write_text(program("Go", "go"), encoding="utf-8")
    subprocess.run(["go", "build", "-o", "orders", "."], cwd=tmp_path, timeout=BUILD_S, check=True)
    assert "received from Go" in printed([tmp_path / "orders", server.address], tmp_path)


@needs("node", "npm")
def test_node(server: Server, tmp_path: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(CLIENTS / "node" / name, tmp_path)
    subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=tmp_path, timeout=BUILD_S, check=True)
    with Producer(server.url) as producer:
        producer.create_topic("orders-node", 4)
    (tmp_path / "orders.js").write_text(program("Node", "javascript"), encoding="utf-8")
    output = printed(["node", "orders.js", server.address], tmp_path, tries=3)
    assert "received from Node" in output
