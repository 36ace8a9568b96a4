"""Signing: how a request shows whose it is, to brokers with ``aclEnable``. [AclClientRPCHook, AclSigner]

Three fields are added: ``AccessKey``, ``SecurityToken`` if there is one, and ``Signature``, which is base64 of
HMAC-SHA1 with the secret key over the values of all other fields, in the order of their names, and then the body.
"""

from __future__ import annotations

import base64
import hmac

from rmqclient.cluster.address.url import Keys
from rmqclient.remoting.frame import Frame


def sign(asked: Frame, keys: Keys) -> None:
    """Sign a request, again if it was signed before."""
    fields = asked.fields
    fields.pop("Signature", None)
    fields["AccessKey"] = keys.access_key
    if keys.security_token:
        fields["SecurityToken"] = keys.security_token
    signed = "".join(fields[name] for name in sorted(fields)).encode() + asked.body
    fields["Signature"] = base64.b64encode(hmac.digest(keys.secret_key.encode(), signed, "sha1")).decode()
