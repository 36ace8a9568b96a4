"""Signature: the signature of a request. [AclClientRPCHook, AclSigner, AclUtils.combineRequestContent]

It has the fields ``AccessKey``, optionally ``SecurityToken``, and ``Signature``: base64 of HMAC-SHA1 with the secret
key over the values of all other fields, in the order of their names, and then the body.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

_SIGNATURE: Final = "Signature"
_LATE: Final = frozenset({"_UNIQUE_KEY_QUERY", "__ZONE_NAME", "__ZONE_MODE"})
"""Fields that some releases of Java's client add after signing, and others before."""


def is_signed(fields: Mapping[str, str], body: bytes, key: bytes) -> bool:
    """Return whether the signature is valid, with or without the fields that clients add late."""
    given = fields.get(_SIGNATURE, "").encode()
    if hmac.compare_digest(signature_of(fields, body, key).encode(), given):
        return True
    early = {name: value for name, value in fields.items() if name not in _LATE}
    return len(early) < len(fields) and hmac.compare_digest(signature_of(early, body, key).encode(), given)


def signature_of(fields: Mapping[str, str], body: bytes, key: bytes) -> str:
    """Return the signature of a request with these fields, including the access key, and this body."""
    signed = "".join(fields[name] for name in sorted(fields) if name != _SIGNATURE)
    return base64.b64encode(hmac.digest(key, signed.encode() + body, "sha1")).decode()
