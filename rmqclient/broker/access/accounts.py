"""Accounts: the file of access keys. [plain_acl.yml, PlainPermissionManager]

A file of JSON, with the names of RocketMQ's ``plain_acl.yml``::

    {
      "globalWhiteRemoteAddresses": ["127.0.0.1"],
      "accounts": [
        {
          "accessKey": "billing",
          "hashedSecretKey": "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12",
          "whiteRemoteAddress": "",
          "admin": false,
          "defaultTopicPerm": "DENY",
          "defaultGroupPerm": "SUB",
          "topicPerms": ["orders=PUB|SUB", "prices=SUB"],
          "groupPerms": ["billing=SUB"]
        }
      ]
    }

``DENY`` stands for every permission that is left out. Clients of a white address need no signature.

A signature is HMAC-SHA1 with the secret, so checking one takes the secret or an equivalent key; a salted hash, as of a
password, cannot do it. HMAC replaces a key longer than 64 bytes by its SHA-1. For such a secret the file has this hash
only (``hashedSecretKey``), and the secret itself is nowhere on the server. ``rmq serve --make-key`` makes secrets that
long. **The hash still signs**: a reader of the file can send requests as its accounts, but cannot learn the secret,
which may be used elsewhere. So only the server may be able to read the file; otherwise it logs a warning. A shorter
secret, one that other brokers already have, stands as ``secretKey`` in clear, as in RocketMQ's file.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from rmqclient.broker.access.addresses import Matches, matching
from rmqclient.broker.routes import Permission
from rmqclient.errors import AccountsUnusable

_HMAC_BLOCK: Final = 64
"""Bytes of a block of SHA-1. A longer key is replaced by its hash. [RFC 2104]"""

_MADE_BYTES: Final = 66  # 88 letters
_HASH: Final = re.compile(r"[0-9a-f]{40}")
_SHORTEST: Final = 6  # as RocketMQ has it


class _Account(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    access_key: str
    secret_key: str = ""
    hashed_secret_key: str = ""
    white_remote_address: str = ""
    admin: bool = False
    default_topic_perm: str = "DENY"
    default_group_perm: str = "DENY"
    topic_perms: list[str] = msgspec.field(default_factory=list)
    group_perms: list[str] = msgspec.field(default_factory=list)


class _File(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    accounts: list[_Account] = msgspec.field(default_factory=list)
    global_white_remote_addresses: list[str] = msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Account:
    """One access key. Its ``repr`` does not show the secret."""

    access_key: str
    signing_key: bytes = field(repr=False)
    is_white: Matches
    is_admin: bool
    default_topic: Permission
    default_group: Permission
    topics: Mapping[str, Permission]
    groups: Mapping[str, Permission]

    @property
    def has_rules(self) -> bool:
        """Whether rules name a topic or a group. An administrator without rules may do everything."""
        return bool(self.topics or self.groups)


@dataclass(frozen=True, slots=True)
class Accounts:
    """All access keys of a file."""

    by_key: Mapping[str, Account]
    is_white: Matches


def read_accounts(path: Path) -> Accounts:
    """Read a file of access keys. Raises AccountsUnusable that names the file and the entry."""
    try:
        read = msgspec.json.decode(path.read_bytes(), type=_File)
        accounts = [_account(entry) for entry in read.accounts]
        white = matching(read.global_white_remote_addresses)
    except OSError as error:
        raise AccountsUnusable(f"access keys {path}: {error.strerror or error}") from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise AccountsUnusable(f"access keys {path}: {error}") from error
    by_key = {account.access_key: account for account in accounts}
    if len(by_key) < len(accounts):
        raise AccountsUnusable(f"access keys {path}: an accessKey stands there twice")
    return Accounts(by_key, white)


def is_readable_by_others(path: Path) -> bool:
    """Return whether more than the file's owner and group may read it."""
    return bool(path.stat().st_mode & 0o004)


def signing_key(secret: str) -> bytes:
    """Return the key that makes the signatures of a secret: its hash if it is long, else the secret itself."""
    key = secret.encode()
    return hashlib.sha1(key, usedforsecurity=False).digest() if len(key) > _HMAC_BLOCK else key


def made_account(access_key: str) -> dict[str, Any]:
    """Make a secret. Returns it as ``secretKey``, for the client, and the ``account`` for the file."""
    secret = secrets.token_urlsafe(_MADE_BYTES)
    account: dict[str, Any] = msgspec.to_builtins(_Account(access_key, hashed_secret_key=signing_key(secret).hex()))
    del account["secretKey"]
    return {"secretKey": secret, "account": account}


def _account(entry: _Account) -> Account:
    name = entry.access_key
    if len(name) < _SHORTEST:
        raise ValueError(f"accessKey {name!r}: has at least {_SHORTEST} letters")
    return Account(
        name,
        _signing_key_of(entry),
        matching([entry.white_remote_address]),
        entry.admin,
        _permission(entry.default_topic_perm, name),
        _permission(entry.default_group_perm, name),
        _rules(entry.topic_perms, name),
        _rules(entry.group_perms, name),
    )


def _signing_key_of(entry: _Account) -> bytes:
    if bool(entry.secret_key) == bool(entry.hashed_secret_key):
        raise ValueError(f"accessKey {entry.access_key!r}: has either a secretKey or a hashedSecretKey")
    if entry.secret_key:
        if len(entry.secret_key) < _SHORTEST:
            raise ValueError(f"accessKey {entry.access_key!r}: its secretKey has at least {_SHORTEST} letters")
        return signing_key(entry.secret_key)
    if not _HASH.fullmatch(entry.hashed_secret_key):
        raise ValueError(f"accessKey {entry.access_key!r}: its hashedSecretKey is 40 digits from 0 to f")
    return bytes.fromhex(entry.hashed_secret_key)


def _permission(text: str, account: str) -> Permission:
    found = Permission.DENY
    for word in text.split("|"):
        name = word.strip()
        if name not in Permission.__members__:
            raise ValueError(f"accessKey {account!r}: {text!r} is not one of DENY, PUB, SUB, PUB|SUB")
        found |= Permission[name]
    return found


def _rules(texts: list[str], account: str) -> dict[str, Permission]:
    rules: dict[str, Permission] = {}
    for text in texts:
        name, equals, permission = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"accessKey {account!r}: {text!r} is not a rule; write one such as orders=PUB|SUB")
        rules[name.strip()] = _permission(permission, account)
    return rules
