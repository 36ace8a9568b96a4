"""Signature: how a request shows whose it is. [AclClientRPCHook, AclSigner, AclUtils.combineRequestContent]

Three fields say it: ``AccessKey``, ``SecurityToken`` if there is one, and ``Signature``, which is base64 of HMAC-SHA1
with the secret key over the values of all other fields, in the order of their names, and then the body.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

_UNSIGNED: Final = frozenset({"Signature", "_UNIQUE_KEY_QUERY"})
"""Java's client adds the second one after it has signed, and brokers know that."""


def signature_of(fields: Mapping[str, str], body: bytes, key: bytes) -> str:
    """Return the signature of a request with these fields, the access key among them, and this body."""
    signed = "".join(fields[name] for name in sorted(fields) if name not in _UNSIGNED)
    return base64.b64encode(hmac.digest(key, signed.encode() + body, "sha1")).decode()
