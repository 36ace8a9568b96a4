"""The files for systemd, containers and Kubernetes: tools accept them, and every command in them is one of ours."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from rmqclient.workers.cli import rmq
from tests.workers.supervised import REPOSITORY

DEPLOY = REPOSITORY / "docs" / "operate" / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
OBJECTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
(POD,) = [each["spec"]["template"]["spec"] for each in OBJECTS if each["kind"] == "Deployment"]


def commands() -> Iterator[tuple[str, list[str]]]:
    for unit in UNITS:
        (line,) = re.findall(r"^ExecStart=\S+/rmq (.+)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
        yield unit.name, shlex.split(line)
    for name, service in COMPOSE["services"].items():
        yield f"compose {name}", service["command"][1:]
    for container in POD["containers"]:
        yield f"kubernetes {container['name']}", container["command"][1:]
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            if command := container.get(kind, {}).get("exec", {}).get("command"):
                yield f"kubernetes {container['name']} {kind}", command[1:]
    for line in re.findall(r"^(?:HEALTHCHECK .*)?CMD (\[.+\])$", containerfile(), re.MULTILINE):
        yield f"Containerfile {line}", json.loads(line)[1:]


def containerfile() -> str:
    return (DEPLOY / "Containerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [pytest.param(words, id=name) for name, words in commands()])
def test_every_command_is_one_of_ours_with_options_that_it_has(command: list[str]) -> None:
    if command[0] == "check":  # parsed without click
        done = subprocess.run(
            [sys.executable, "-m", "rmqclient.workers", *command], cwd=REPOSITORY, capture_output=True, check=False
        )
        assert b"usage:" not in done.stderr
        assert b"unrecognized" not in done.stderr
        return
    node: click.Command | None = rmq
    context = rmq.make_context("rmq", [], resilient_parsing=True)
    while isinstance(node, click.Group):
        node, command = node.get_command(context, command[0]), command[1:]
    assert node is not None
    try:
        node.make_context("rmq", list(command), parent=context)
    except click.BadParameter as error:
        assert "does not exist" in error.message, "a file of the host, such as a token"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze, of the package systemd")
    text = re.sub(r"(?m)^ExecStart=\S+/rmq", f"ExecStart={sys.executable}", unit.read_text(encoding="utf-8"))
    copy = tmp_path / unit.name
    copy.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if unit.name in line or "Unknown" in line]
    assert (done.returncode, said) == (0, [])


def test_systemd_refuses_a_unit_with_a_mistake(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze, of the package systemd")
    unit = tmp_path / "wrong.service"
    unit.write_text("[Service]\nExecStart=/bin/true\nWatchdogSecs=3\n", encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "WatchdogSecs" in done.stderr


def test_what_ends_a_service_waits_longer_than_the_workers_may_take() -> None:
    unit = (DEPLOY / "rmq-workers.service").read_text(encoding="utf-8")
    (stop_s,) = map(int, re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE))
    workers = COMPOSE["services"]["workers"]
    (container,) = [each for each in POD["containers"] if each["name"] == "workers"]
    for grace_s, command in (
        (stop_s, shlex.split(unit)),
        (int(workers["stop_grace_period"].rstrip("s")), workers["command"]),
        (POD["terminationGracePeriodSeconds"], container["command"]),
    ):
        timeout = command[command.index("--shutdown-timeout") + 1]
        assert grace_s >= int(timeout.rstrip("s")) + 10


def test_containers_that_share_a_store_share_one_volume() -> None:
    volumes = [service["volumes"] for service in COMPOSE["services"].values()]
    assert volumes == [["data:/data"]] * 3
    assert {"data"} == COMPOSE["volumes"].keys()
    mounts = [container["volumeMounts"] for container in POD["containers"]]
    assert mounts == [[{"name": "store", "mountPath": "/data"}]] * 2
    assert [volume["name"] for volume in POD["volumes"]] == ["store"]


def test_kubernetes_accepts_the_objects() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="no kubernetes-validate: make install-all brings it")
    for each in OBJECTS:
        validate.validate(each, validate.latest_version(), strict=True)
    wrong: dict[str, Any] = json.loads(json.dumps(OBJECTS[1]))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["periodSecond"] = 1
    with pytest.raises(Exception, match="periodSecond"):
        validate.validate(wrong, validate.latest_version(), strict=True)


def test_probes_ask_for_paths_that_are_answered() -> None:
    for container in POD["containers"]:
        ports = {port["name"] for port in container["ports"]}
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind, {})
            if "httpGet" in probe:
                assert probe["httpGet"]["path"] in ("/live", "/ready")
            port = (probe.get("httpGet") or probe.get("tcpSocket") or {}).get("port")
            assert port is None or port in ports
