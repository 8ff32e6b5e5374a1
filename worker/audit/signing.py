"""Signatures of checkpoints: HMAC-SHA256 with a secret of bytes, Ed25519 with a key in PEM."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Literal

import msgspec

from worker.audit.records import Checkpoint, encode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

MIN_SECRET_BYTES = 16
Algorithm = Literal["none", "hmac-sha256", "ed25519"]


class AuditKey:
    """A key that signs checkpoints, or that only checks them (a public key in PEM).

    `data` beginning with `-----BEGIN` is an Ed25519 key, which needs the package cryptography; anything else is the
    secret of an HMAC, which whoever checks must have too.

    Raises:
        ValueError: the key cannot be used; the message says why and never holds the key.
    """

    def __init__(self, data: bytes) -> None:
        self._secret = b""
        self._private: Ed25519PrivateKey | None = None
        self._public: Ed25519PublicKey | None = None
        if data.lstrip().startswith(b"-----BEGIN"):
            self.algorithm: Algorithm = "ed25519"
            self._private, self._public = _read_pem(data)
            self.id = hashlib.sha256(self._public.public_bytes_raw()).hexdigest()[:16]
        else:
            if len(data) < MIN_SECRET_BYTES:
                raise ValueError(f"the audit key must have at least {MIN_SECRET_BYTES} bytes")
            self.algorithm = "hmac-sha256"
            self._secret = data
            self.id = hashlib.sha256(b"toolreef audit key\0" + data).hexdigest()[:16]

    @property
    def can_sign(self) -> bool:
        """Whether this is more than a public key."""
        return self._public is None or self._private is not None

    def signed(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with this key's signature."""
        named = msgspec.structs.replace(checkpoint, alg=self.algorithm, key=self.id)
        return msgspec.structs.replace(named, signature=self._sign(named))

    def _sign(self, checkpoint: Checkpoint) -> str:
        if self._private is not None:
            return self._private.sign(_signed_bytes(checkpoint)).hex()
        return hmac.digest(self._secret, _signed_bytes(checkpoint), "sha256").hex()

    def verifies(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint bears a signature by this key."""
        if checkpoint.alg != self.algorithm:
            return False
        if self._public is None:
            return hmac.compare_digest(self._sign(checkpoint), checkpoint.signature)
        from cryptography.exceptions import InvalidSignature  # an optional dependency, present if _public is

        try:
            self._public.verify(bytes.fromhex(checkpoint.signature), _signed_bytes(checkpoint))
        except (InvalidSignature, ValueError):
            return False
        return True


def _signed_bytes(checkpoint: Checkpoint) -> bytes:
    return b"toolreef audit checkpoint\0" + encode(msgspec.structs.replace(checkpoint, signature=""))


def _read_pem(data: bytes) -> tuple[Ed25519PrivateKey | None, Ed25519PublicKey]:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # an optional dependency
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    except ImportError:
        raise ValueError("an audit key in PEM needs the package cryptography, which is not installed") from None
    private: object = None
    try:
        if b"PRIVATE KEY-----" in data:
            private = serialization.load_pem_private_key(data, password=None)
            public: object = private.public_key()
        else:
            public = serialization.load_pem_public_key(data)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("the audit key in PEM cannot be read; it must be an Ed25519 key without a password") from None
    if not isinstance(public, Ed25519PublicKey):
        raise ValueError("the audit key in PEM must be an Ed25519 key")
    return (private if isinstance(private, Ed25519PrivateKey) else None), public
