"""Storage: the objects of an archive, on the file system that its URL names.

==========================================  ===========================================================================
URL                                         library that reads and writes it
==========================================  ===========================================================================
``/backup/orders``, ``file:///backup``      ``pyarrow.fs.LocalFileSystem``
``s3://bucket/orders`` (``s3a`` as well)    ``pyarrow.fs.S3FileSystem``; its arguments as options, or in the URL's query
``gs://``, ``hdfs://``, ``abfss://``        pyarrow's own
any other, and these three with options     fsspec, whose file system takes the options
==========================================  ===========================================================================

Credentials come from options, the URL or the environment, as pyarrow takes them (``AWS_ACCESS_KEY_ID``,
``AWS_PROFILE``, ``AWS_REGION``, ``AWS_ENDPOINT_URL`` and so on). No text from this module contains them.

An object appears under its name only when it is complete. If puts are atomic, as on S3, it is written under its name.
Otherwise it is written to ``.uploading/``, flushed if the disk is local, and renamed.
"""

# ruff: noqa: PLC0415 - pyarrow takes a second to import, and only archives need it

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from rmqclient.archive.errors import ArchiveError
from rmqclient.store.errors import QueueError
from rmqclient.store.files.mapped_file import sync_directory, sync_file

TEMPORARY = ".uploading"

_S3_CREDENTIALS = ("access_key", "secret_key", "session_token", "role_arn", "session_name", "external_id")
_S3_PLACE = ("region", "scheme", "endpoint_override", "tls_ca_file_path", "proxy_options")
_S3_TEXTS = frozenset((*_S3_CREDENTIALS, *_S3_PLACE))
_S3_FLAGS = frozenset(("anonymous", "force_virtual_addressing", "background_writes"))
_S3_NUMBERS = frozenset(("request_timeout", "connect_timeout", "load_frequency"))
_SHOWN_OPTIONS = frozenset(("region", "scheme", "endpoint_override"))
_NO_SECRETS = _SHOWN_OPTIONS | _S3_FLAGS | _S3_NUMBERS | {"tls_ca_file_path"}
_SHORTEST_SECRET = 3
"""A shorter secret is not removed from messages: it occurs in them by chance."""
_PUTS_ARE_ATOMIC = frozenset(("s3", "s3a", "gcs", "gs", "abfs", "abfss", "az", "oss"))
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")

Parts = Iterable[bytes | memoryview]


class Storage:
    """The objects below one URL. ``options`` are for the file system, by the names of its own arguments.

    ``shown`` is the URL for people, without credentials. Raises ArchiveError for an invalid URL or invalid options, and
    if pyarrow is not installed.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self.url = url if is_url(url) else str(Path(url).absolute())
        self.options = dict(options or {})
        self.shown = shown(self.url)
        self._secrets = _secrets_of(self.url, self.options)
        with self._archive_errors("the URL cannot be used"):
            self._files, path = _file_system(self.url, self.options)
        self._path = path.rstrip("/")
        kind = _kind_of(self._files)
        self._is_local = kind in ("local", "file")
        self._puts_are_atomic = kind in _PUTS_ARE_ATOMIC

    @property
    def local_path(self) -> Path | None:
        """The directory, if the URL names one of this host."""
        return Path(self._path or "/") if self._is_local else None

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if it does not exist. Raises ArchiveError."""
        with self._archive_errors(f"{name} cannot be looked at"):
            self._forget_listings()
            info = self._files.get_file_info(self._place(name))
            return int(info.size) if info.is_file else None

    def is_there(self, name: str) -> bool:
        """Return whether an object or a directory exists. Raises ArchiveError."""
        with self._archive_errors(f"{name} cannot be looked at"):
            self._forget_listings()
            return str(self._files.get_file_info(self._place(name)).type.name) != "NotFound"

    def open(self, name: str) -> Object:
        """Open an object to read parts of it. Raises FileNotFoundError, ArchiveError."""
        with self._archive_errors(f"{name} cannot be opened", may_be_missing=True):
            file = self._files.open_input_file(self._place(name))
            return Object(file, int(file.size()), lambda: self._archive_errors(f"{name} cannot be read"))

    def write(self, name: str, parts: Parts) -> None:
        """Write an object of these parts; replaces an existing one. Raises ArchiveError.

        If taking the parts fails and objects are renamed, the object under the name stays as it was. If puts are
        atomic, the object may be cut short, because pyarrow cannot abandon a put.
        """
        with self._archive_errors(f"{name} cannot be written"):
            if self._puts_are_atomic:
                self._write(self._place(name), parts)
                return
            temporary, place = self._place(f"{TEMPORARY}/{secrets.token_hex(8)}"), self._place(name)
            self._make_directory(temporary)
            self._make_directory(place)
            try:
                self._write(temporary, parts)
                if self._is_local:
                    sync_file(Path(temporary))
                self._files.move(temporary, place)
            except BaseException:  # on a full disk, what was written would take the room of others until the next run
                with suppress(Exception):
                    self._files.delete_file(temporary)
                raise
            if self._is_local:
                sync_directory(Path(place).parent)

    def names(self, directory: str) -> list[str]:
        """Return the names of all objects below a directory, sorted; none without it. Raises ArchiveError."""
        from pyarrow import fs

        with self._archive_errors(f"{directory} cannot be listed"):
            self._forget_listings()
            below = fs.FileSelector(self._place(directory), allow_not_found=True, recursive=True)
            found = [info.path for info in self._files.get_file_info(below) if info.is_file]
            return sorted(path.removeprefix(f"{self._path}/") for path in found)

    def remove(self, name: str) -> None:
        """Remove an object. Raises ArchiveError, also where it may not be removed."""
        with self._archive_errors(f"{name} cannot be removed"):
            self._files.delete_file(self._place(name))

    def remove_leftovers(self) -> None:
        """Remove the leftovers of killed writers. Only while no other process writes. Raises ArchiveError."""
        if not self._puts_are_atomic and self.is_there(TEMPORARY):
            with self._archive_errors(f"{TEMPORARY} cannot be removed"):
                self._files.delete_dir(self._place(TEMPORARY))

    def hidden(self, text: str) -> str:
        """Return ``text`` without credentials."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _place(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _write(self, place: str, parts: Parts) -> None:
        with self._files.open_output_stream(place) as stream:
            for part in parts:
                stream.write(part)

    def _make_directory(self, place: str) -> None:
        self._files.create_dir(place.rpartition("/")[0], recursive=True)

    def _forget_listings(self) -> None:
        if (inner := _of_fsspec(self._files)) is not None:  # fsspec caches listings
            inner.invalidate_cache()

    @contextmanager
    def _archive_errors(self, doing: str, *, may_be_missing: bool = False) -> Iterator[None]:
        try:
            yield
        except QueueError:
            raise
        except Exception as error:  # each file system raises its own library's errors
            if may_be_missing and isinstance(error, FileNotFoundError):
                raise
            reason = " ".join(self.hidden(str(error)).split()) or type(error).__name__
            # Not chained: the cause would show the credentials.
            raise ArchiveError(f"archive {self.shown}: {doing}: {reason}") from None


class Object:
    """An open object, which is read in parts; ``size`` is in bytes."""

    def __init__(self, file: Any, size: int, archive_errors: Callable[[], Any]) -> None:
        self.size = size
        self._file = file
        self._archive_errors = archive_errors

    def read(self, position: int, count: int) -> bytes:
        """Return bytes from ``position`` on, fewer than ``count`` only at the end. Raises ArchiveError."""
        with self._archive_errors():
            return bytes(self._file.read_at(max(0, min(count, self.size - position)), position))

    def parts(self, part_bytes: int) -> Iterator[bytes]:
        """Yield all of it, part by part. Raises ArchiveError."""
        return (self.read(position, part_bytes) for position in range(0, self.size, part_bytes))

    def close(self) -> None:
        """Close it."""
        self._file.close()


def is_url(text: str) -> bool:
    """Return whether a text is a URL rather than a path."""
    return "://" in text


def shown(url: str) -> str:
    """Return a URL without credentials."""
    if not is_url(url):
        return url
    try:
        parts = urlsplit(url)
        query = [(name, value) for name, value in parse_qsl(parts.query) if name in _SHOWN_OPTIONS]
    except ValueError:
        return f"{url.partition('://')[0]}://..."
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, urlencode(query, safe=":/"), ""))


def _kind_of(files: Any) -> str:
    """Return the name of a file system in pyarrow or fsspec."""
    inner = _of_fsspec(files)
    if inner is None:
        return str(files.type_name)
    return str(inner.protocol if isinstance(inner.protocol, str) else inner.protocol[0])


def _of_fsspec(files: Any) -> Any:
    """Return the fsspec file system inside a pyarrow one; None without one."""
    return getattr(getattr(files, "handler", None), "fs", None)


def _secrets_of(url: str, options: Mapping[str, str]) -> list[str]:
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
    except ValueError:
        return [url]
    user = parts.netloc.rpartition("@")[0]
    secrets = [user, *user.split(":", 1)]
    secrets += [str(value) for name, value in [*query.items(), *options.items()] if name not in _NO_SECRETS]
    forms = {form for text in secrets for form in (text, unquote(text), quote(text, safe=""))}
    return sorted((form for form in forms if len(form) >= _SHORTEST_SECRET), key=len, reverse=True)


def _file_system(url: str, options: Mapping[str, str]) -> tuple[Any, str]:
    """Return a pyarrow file system and the path in it."""
    try:
        import pyarrow
        from pyarrow import fs
    except ImportError:
        raise ArchiveError("archives need pyarrow: pip install 'rmqclient[archive]'") from None
    scheme = url.partition("://")[0] if is_url(url) else ""
    if scheme in ("s3", "s3a"):
        return _s3(url, options)
    if not options:
        try:
            files, path = fs.FileSystem.from_uri(url)
        except pyarrow.ArrowInvalid as error:
            if "Unrecognized filesystem type" not in str(error):
                raise
        else:
            return files, str(path)
    return _fsspec(url, scheme, options)


def _fsspec(url: str, scheme: str, options: Mapping[str, str]) -> tuple[Any, str]:
    from pyarrow import fs

    try:
        from fsspec.core import url_to_fs

        files, path = url_to_fs(url, **options)
    except ImportError as error:
        raise ArchiveError(
            f"archive {shown(url)}: {scheme}:// with these options is read by fsspec, and something is missing "
            f"({error}): pip install fsspec, and the package that has {scheme}"
        ) from None
    return fs.PyFileSystem(fs.FSSpecHandler(files)), str(path)


def _s3(url: str, options: Mapping[str, str]) -> tuple[Any, str]:
    from pyarrow import fs

    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    given = dict(parse_qsl(parts.query)) | dict(options)
    if user:
        access_key, _, secret_key = user.partition(":")
        given = {"access_key": unquote(access_key), "secret_key": unquote(secret_key)} | given
    if not host:
        raise ArchiveError(f"archive {shown(url)}: the URL names no bucket: write s3://bucket/path")
    arguments: dict[str, Any] = {name: _s3_value(url, name, text) for name, text in given.items()}
    endpoint = str(arguments.get("endpoint_override") or _first_set(_ENDPOINT_VARIABLES))
    arguments["endpoint_override"] = endpoint or None
    if is_url(endpoint):
        arguments["scheme"], _, endpoint = endpoint.partition("://")
        arguments["endpoint_override"] = endpoint.rstrip("/")
    if not arguments.get("region"):
        if endpoint:
            arguments["region"] = _first_set(_REGION_VARIABLES) or "us-east-1"
        elif not _first_set(_REGION_VARIABLES):
            arguments["region"] = fs.resolve_s3_region(host)
    return fs.S3FileSystem(**arguments), host + unquote(parts.path)


def _first_set(variables: Iterable[str]) -> str:
    return next((text for name in variables if (text := os.environ.get(name))), "")


def _s3_value(url: str, name: str, text: str) -> str | bool | float:
    if name in _S3_TEXTS:
        return text
    if name in _S3_FLAGS and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if name in _S3_NUMBERS:
        return float(text) if name != "load_frequency" else int(text)
    if name in _S3_FLAGS:
        raise ArchiveError(f"archive {shown(url)}: option {name} must be true or false, not {text!r}")
    known = ", ".join(sorted(_S3_TEXTS | _S3_FLAGS | _S3_NUMBERS))
    raise ArchiveError(f"archive {shown(url)}: option {name!r} is not one of S3's: {known}")
