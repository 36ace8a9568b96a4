"""Archives on S3, on a server on loopback: uploaded once, read by ranges, and no credentials in any text."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

from rmqclient.archive.archiver import archive
from rmqclient.archive.storage import Storage
from rmqclient.archive.view import ArchivedView, open_view
from rmqclient.errors import ArchiveError
from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.inspect.view import LocalView
from tests.support.archived import force, killed_in_new_process, log_bytes, more, rows
from tests.support.s3_server import BUCKET, KEY, SECRET, S3Server, s3_server
from tests.support.written import SMALL

pytest.importorskip("moto", reason="an S3 server comes with the extra test")

FILE = SMALL.commit_log_file_bytes
URL = f"s3://{BUCKET}/stores/orders"
AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION")
NO_MORE_AWS = ("AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ROLE_ARN")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_other_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in AWS + NO_MORE_AWS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """A place of its own for each test."""
    return f"{URL}/{quote(request.node.name)}"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root, SMALL, housekeeping=False) as opened:
        more(opened, 200)
        yield opened


@pytest.mark.guarantee("G27")
def test_a_store_is_archived_on_s3_once_and_read_with_what_it_still_has(
    store: MessageStore, root: Path, server: S3Server, url: str
) -> None:
    before = len(server.requests())
    report = archive(root, url, server.options)
    more(store, 100)
    second = archive(root, url, server.options)
    assert archive(root, url, server.options).uploaded_bytes == 0
    # Each commit log file was put together once
    put = Counter(path for path in server.requests()[before:] if path.startswith("PUT ") and "commitlog" in path)
    assert len(put) == report.log_files + second.log_files > 3
    assert set(put.values()) == {1}
    # And both are one log
    every = rows(LocalView(root))
    assert rows(ArchivedView(url, server.options)) == rows(LocalView(root), log_end=second.log_range.stop)
    force(store)
    view = pickle.loads(pickle.dumps(open_view(str(root), url, server.options)))
    assert rows(view) == every
    assert rows(open_view(url, None, server.options)) == rows(ArchivedView(url, server.options))


def test_a_log_file_of_many_parts_is_uploaded_and_read_by_ranges(tmp_path: Path, server: S3Server, url: str) -> None:
    # Given files that are larger than a part of an upload, and than a range of a read
    config = replace(SMALL, commit_log_file_bytes=25 << 20, max_body_bytes=1 << 20)
    with open_store(tmp_path / "store", config, housekeeping=False) as store:
        appender = store.appenders.make(
            lambda topic: store.topics.create(topic, 1), lambda body: bytes(str(body), "ascii")
        )
        for number in range(30):
            appender.append(Message("large", os.urandom(1 << 20), keys=[f"k{number}"]))
        store.flusher.flush_thorough()
        before = len(server.requests())
        assert archive(store.root, url, server.options).log_files == 1
        parts = [line for line in server.requests()[before:] if "partNumber" in line and "commitlog" in line]
        assert len(parts) > 1
        local, archived = LocalView(store.root), ArchivedView(url, server.options)
        assert log_bytes(archived, 0, 25 << 20, step=100_000) == log_bytes(local, 0, 25 << 20)
        gets = [line for line in server.requests()[before:] if line.startswith("GET ") and "commitlog" in line]
        assert 3 < len(gets) < 8


@pytest.mark.crash
@pytest.mark.guarantee("G27")
@pytest.mark.sweep
def test_an_archiver_killed_in_the_middle_of_a_put_leaves_no_half_object(
    store: MessageStore, root: Path, server: S3Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(root, url, server.options)
    before = rows(ArchivedView(url, server.options))
    more(store, 150)
    after = rows(LocalView(root), log_end=store.log_files.bases()[-1])
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.endpoint}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for step in count(1, 3):  # the later ones find more that is there
        if not killed_in_new_process(step, root, url):
            break
        assert rows(ArchivedView(url)) in (before, after)  # the last steps clear up behind the killed ones
        sizes = {Storage(url).size(f"commitlog/{name:020d}") for name in range(0, 20 * FILE, FILE)}
        assert sizes == {None, FILE}
    assert step > 10
    assert rows(ArchivedView(url)) == after
    assert archive(root, url).uploaded_bytes == 0


def test_endpoint_credentials_and_region_come_from_options_the_url_or_the_environment(
    store: MessageStore, root: Path, server: S3Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(root, url, server.options)
    expected = rows(ArchivedView(url, server.options))
    endpoint = f"endpoint_override={server.endpoint}&scheme=http&region=eu-central-1"
    in_url = url.replace("s3://", f"s3://{KEY}:{quote(SECRET, safe='')}@") + f"?{endpoint}"
    assert rows(ArchivedView(in_url)) == expected
    options = {"endpoint_override": f"http://{server.endpoint}/", "access_key": KEY, "secret_key": SECRET}
    assert rows(ArchivedView(url.replace("s3:", "s3a:"), options)) == expected
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert rows(ArchivedView(f"{url}?{endpoint}")) == expected
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.endpoint}")
    assert rows(ArchivedView(url)) == expected


def test_credentials_are_in_no_manifest_report_or_error(
    store: MessageStore, root: Path, server: S3Server, url: str
) -> None:
    in_url = url.replace("s3://", f"s3://{KEY}:{quote(SECRET, safe='')}@")
    in_url += f"?endpoint_override={server.endpoint}&scheme=http"
    report = archive(root, in_url)
    manifest = Storage(in_url).open("manifest.json")
    told = [repr(report), manifest.read(0, manifest.size).decode(), ArchivedView(in_url).shown]
    for bad, options in (
        (in_url.replace(BUCKET, "no-such-bucket"), {}),
        (in_url.replace(server.endpoint, "127.0.0.1:1"), {}),
        (url, server.options | {"endpoint_override": "127.0.0.1:1"}),
        (url, server.options | {"tls": SECRET}),
    ):
        with pytest.raises(ArchiveError) as raised:
            archive(root, bad, options)
        told.append(f"{raised.value!r} {raised.value.__cause__!r}")
    assert "no-such-bucket" in told[3]
    assert "127.0.0.1:1" in told[4]
    for text in told:
        assert not any(secret in text for secret in (KEY, SECRET, quote(SECRET, safe="")))
