"""The URL of a cluster: what it may say, what is refused, and that its secrets are shown nowhere."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rmqclient.cluster.address.url import ClusterURL, Keys, TlsOptions
from rmqclient.errors import InvalidURL


@pytest.fixture(autouse=True)
def _no_keys_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY", "SECRET_KEY", "SECURITY_TOKEN"):
        monkeypatch.delenv(f"ROCKETMQ_{name}", raising=False)


def test_a_host_alone_is_enough() -> None:
    assert ClusterURL.parse("rocketmq://example") == ClusterURL(("example:9876",))


@pytest.mark.parametrize("between", [",", ";"])
def test_several_name_servers_are_named_with_either_sign(between: str) -> None:
    url = ClusterURL.parse(f"rocketmq://one:1{between}10.0.0.2:2{between}[::1]:3")
    assert url.name_servers == ("one:1", "10.0.0.2:2", "[::1]:3")


def test_everything_can_be_said(tmp_path: Path) -> None:
    ca_file, cert_file = tmp_path / "ca.pem", tmp_path / "own.pem"
    ca_file.touch()
    cert_file.touch()
    url = ClusterURL.parse(
        f"rocketmq://me:a%2Fb%40c@host:1234/tenant?tls=true&ca_file={ca_file}&check_hostname=true&cert_file={cert_file}"
        "&timeout=1.5&unit_name=west&security_token=t%2Bk"
    )
    assert url == ClusterURL(
        ("host:1234",),
        Keys("me", "a/b@c", "t+k"),
        "tenant",
        TlsOptions(str(ca_file), check_hostname=True, cert_file=str(cert_file)),
        1.5,
        "west",
    )


def test_keys_are_taken_from_the_environment_unless_the_url_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "outside")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "hidden")
    assert ClusterURL.parse("rocketmq://host").keys == Keys("outside", "hidden")
    assert ClusterURL.parse("rocketmq://inside:known@host").keys == Keys("inside", "known")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("./store", "write it as rocketmq://host:9876"),
        ("rocketmq://", "write it as"),
        ("rocketmq://host:0", "the port is from 1 to 65,535"),
        ("rocketmq://host:65536", "the port is from 1 to 65,535"),
        ("rocketmq://host:x", "not host:port"),
        ("rocketmq://one,,two", "not host:port"),
        ("rocketmq://host/a%25b", "the namespace, after the first /"),
        ("rocketmq://host?colour=red", "no option colour; there are tls, "),
        ("rocketmq://host?tls=maybe", "tls=maybe: say true or false"),
        ("rocketmq://host?tls=true&tls=true", "given twice"),
        ("rocketmq://host?timeout=0", "more than 0 and at most 3,600"),
        ("rocketmq://host?timeout=soon", "give seconds"),
        ("rocketmq://host?timeout=nan", "give seconds"),
        ("rocketmq://host?ca_file=/nowhere/ca.pem", "no such file"),
        ("rocketmq://host?check_hostname=true", "it needs ca_file"),
        ("rocketmq://host?key_file=/etc/hostname", "it needs cert_file"),
        ("rocketmq://host?tls=false&ca_file=/etc/hostname", "are for TLS"),
        ("rocketmq://me@host", "one of the two keys is missing"),
    ],
)
def test_what_is_not_understood_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidURL, match=r"rocketmq://|\./store") as raised:
        ClusterURL.parse(text)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "rocketmq://me:s3cret@host:x",
        "rocketmq://me:s3cret@host?colour=s3cret",
        "rocketmq://me:s3cret@host?security_token=s3cret&timeout=0",
        "rocketmq://:s3cret@host",
        "rocketmq://me:s3/hush@host",
        "http://me:s3cret@host",
    ],
)
def test_no_error_shows_a_secret(text: str) -> None:
    with pytest.raises(InvalidURL) as raised:
        ClusterURL.parse(text)
    assert "s3cret" not in str(raised.value)
    assert "hush" not in str(raised.value)


def test_no_text_of_a_url_shows_a_secret() -> None:
    url = ClusterURL.parse("rocketmq://me:s3cret@host/tenant?security_token=s3cret")
    assert "s3cret" not in f"{url!r} {url} {url.shown}"
    assert url.shown == "rocketmq://host:9876/tenant"


def test_a_url_survives_pickling_with_its_keys() -> None:
    url = ClusterURL.parse("rocketmq://me:s3cret@host/tenant")
    assert pickle.loads(pickle.dumps(url)) == url


NAMES = {
    "orders": "N%orders",
    "%RETRY%shop": "%RETRY%N%shop",
    "%DLQ%shop": "%DLQ%N%shop",
    "N%orders": "N%orders",
    "%RETRY%N%shop": "%RETRY%N%shop",
    "TBW102": "TBW102",
    "SCHEDULE_TOPIC_XXXX": "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer": "rmq_sys_wheel_timer",
    "CID_RMQ_SYS_TRANS": "CID_RMQ_SYS_TRANS",
    "": "",
}


@pytest.mark.parametrize(("name", "wrapped"), NAMES.items())
def test_names_get_the_namespace_as_rocketmq_gives_it(name: str, wrapped: str) -> None:
    url = ClusterURL.parse("rocketmq://host/N")
    assert url.wrap(name) == wrapped
    assert url.unwrap(url.wrap(name)) == name.replace("N%", "")


@pytest.mark.parametrize("name", NAMES)
def test_without_a_namespace_names_stay_as_they_are(name: str) -> None:
    url = ClusterURL.parse("rocketmq://host")
    assert url.wrap(name) == url.unwrap(name) == name
