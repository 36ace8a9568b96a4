"""Signing: signs requests for brokers with ``aclEnable``. [AclClientRPCHook]"""

from __future__ import annotations

from rmqclient.cluster.address.url import Keys
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.signature import signature_of


def sign(asked: Frame, keys: Keys) -> None:
    """Sign a request, replacing an earlier signature."""
    fields = asked.fields
    fields["AccessKey"] = keys.access_key
    if keys.security_token:
        fields["SecurityToken"] = keys.security_token
    fields["Signature"] = signature_of(fields, asked.body, keys.secret_key.encode())
