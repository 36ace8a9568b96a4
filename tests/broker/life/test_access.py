"""Access keys and TLS of a server process, with this library's own client on the other side."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.errors import NoPermission, error_of
from rmqclient.remoting.frame import Frame
from tests.broker.access.signing import account, signed
from tests.broker.life.serving import TOP, refused, serving
from tests.broker.net.loopback import caller

CLUSTER = RequestCode.GET_BROKER_CLUSTER_INFO


def test_only_those_with_a_key_are_answered(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "rmqclient.workers", "serve", "--make-key", "billing"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    key = json.loads(made.stdout)
    acl = tmp_path / "acl.json"
    acl.write_text(json.dumps({"accounts": [key["account"]]}), encoding="utf-8")
    acl.chmod(0o600)
    with serving(tmp_path, str(tmp_path / "store"), "--acl", str(acl)) as server, caller(server.address) as client:
        answer = client.ask(Frame(CLUSTER))
        assert isinstance(error_of(answer), NoPermission)
        assert client.ask(signed(Frame(CLUSTER), secret=key["secretKey"].encode())).code == 0
        assert "No accessKey is configured" in server.log
        assert "Traceback" not in server.log


def test_a_file_of_keys_with_a_mistake_keeps_the_server_from_starting(tmp_path: Path) -> None:
    acl = tmp_path / "acl.json"
    acl.write_text(json.dumps({"accounts": [account(topicPerms=["orders"])]}), encoding="utf-8")
    assert "'orders' is not a rule" in refused(str(tmp_path / "store"), "--acl", str(acl), "--listen", "127.0.0.1:0")


def test_a_server_without_a_certificate_makes_one(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with serving(tmp_path, str(tmp_path / "store")) as server:
        with caller(server.address) as plain, caller(server.address) as client:
            client.sock = context.wrap_socket(client.sock)
            assert client.ask(Frame(CLUSTER)).code == 0
            assert plain.ask(Frame(CLUSTER)).code == 0
        assert server.log == ""


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--tls-key", "{file}"), "a key needs a certificate"),
        (("--tls", "disabled", "--tls-cert", "{file}"), "never read"),
        (("--tls-cert", "{file}"), "PEM"),
        (("--tls", "sometimes"), "sometimes"),
        (("--tls-cert", "{file}.not"), "does not exist"),
    ],
)
def test_options_that_cannot_be_are_refused_with_a_reason(tmp_path: Path, options: tuple[str, ...], why: str) -> None:
    file = tmp_path / "file.pem"
    file.write_text("no certificate", encoding="utf-8")
    given = [option.format(file=file) for option in options]
    assert why in refused(str(tmp_path / "store"), "--listen", "127.0.0.1:0", *given)
