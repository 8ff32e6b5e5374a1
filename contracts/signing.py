"""Approvals signed with Ed25519, so that neither an agent's nor a worker's nor an approver's Redis password approves.

Needs the package cryptography (`pip install toolreef[signing]`), which is imported only where a key is used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from contracts.asks import Permit
from contracts.plans import Approval

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_DER_PREFIX = bytes.fromhex("302a300506032b6570032100")
"""What stands before an Ed25519 public key in DER, as `openssl pkey -pubout -outform DER` writes it."""


def plan_message(queue: str, session: str, approval: Approval) -> bytes:
    """The bytes that are signed for a verdict on a plan: all of it but the signature, and where it counts."""
    return b"toolreef plan approval 1\n" + _canonical(approval, queue=queue, session=session)


def call_message(queue: str, session: str, digest: str, permit: Permit) -> bytes:
    """The bytes that are signed for a verdict on one call, whose content has this digest."""
    return b"toolreef call approval 1\n" + _canonical(permit, queue=queue, session=session, digest=digest)


class ApproverKey:
    """An approver's private key, an Ed25519 key in PEM without a password.

    Raises:
        ValueError: the key cannot be used; the message says why and never holds the key.
    """

    def __init__(self, pem: bytes) -> None:
        self._private = _read_private(pem)
        raw = self._private.public_key().public_bytes_raw()
        self.id = key_id(raw)
        self.public = base64.b64encode(raw).decode()
        """For a line of the workers' file of approvers' keys."""

    @classmethod
    def read(cls, path: Path) -> ApproverKey:
        """From a file.

        Raises:
            OSError: it can't be read.
            ValueError: the key cannot be used.
        """
        return cls(path.read_bytes())

    def sign(self, message: bytes) -> str:
        """The signature in hex."""
        return self._private.sign(message).hex()


class ApproverKeys:
    """The public keys that approvals must be signed by: lines `name base64`, comments from `#` on.

    Raises:
        ValueError: a line cannot be used, or there is none; the message names its number.
    """

    def __init__(self, text: str) -> None:
        found: dict[str, tuple[str, Ed25519PublicKey]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) != 2:
                raise ValueError(f"line {number} is not a name and a key in base64")
            raw = _raw_key(words[1], number)
            found[key_id(raw)] = (words[0], _public(raw, number))
        if not found:
            raise ValueError("there is no key in it, so nobody could ever approve")
        self._keys: Mapping[str, tuple[str, Ed25519PublicKey]] = found
        self._verified: dict[tuple[str, str, bytes], bool] = {}

    def name_of(self, key: str) -> str | None:
        """Whose key it is, by its id."""
        named = self._keys.get(key)
        return named[0] if named else None

    def verifies(self, key: str, message: bytes, signature: str) -> bool:
        """Whether one of the keys, by its id, made the signature."""
        asked = (key, signature, message)
        known = self._verified.get(asked)
        if known is None:
            if len(self._verified) >= 1000:
                self._verified.clear()
            known = self._verified[asked] = self._check(*asked)
        return known

    def _check(self, key: str, signature: str, message: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature  # an optional dependency, present if there are keys

        named = self._keys.get(key)
        if named is None:
            return False
        try:
            named[1].verify(bytes.fromhex(signature), message)
        except (InvalidSignature, ValueError):
            return False
        return True


def signed_approval(key: ApproverKey, queue: str, session: str, approval: Approval) -> Approval:
    """The verdict on a plan with the key's signature."""
    named = structs.replace(approval, key=key.id)
    return structs.replace(named, signature=key.sign(plan_message(queue, session, named)))


def signed_permit(key: ApproverKey, queue: str, session: str, digest: str, permit: Permit) -> Permit:
    """The verdict on a call with the key's signature."""
    named = structs.replace(permit, key=key.id)
    return structs.replace(named, signature=key.sign(call_message(queue, session, digest, named)))


def new_private_key() -> bytes:
    """A new private key in PEM.

    Raises:
        ValueError: the package cryptography is not installed.
    """
    private, serialization = _ed25519()[0].generate(), _serialization()
    pem: bytes = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


def key_id(raw: bytes) -> str:
    """The id of a public key: the first half of its SHA-256's first half, in hex."""
    return hashlib.sha256(raw).hexdigest()[:16]


def _canonical(verdict: Approval | Permit, **where: str) -> bytes:
    fields = {**structs.asdict(verdict), **where}
    del fields["signature"]
    return msgspec.json.encode(fields, order="sorted")


def _raw_key(word: str, number: int) -> bytes:
    try:
        raw = base64.b64decode(word, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"line {number}: the key is not base64") from None
    raw = raw.removeprefix(_DER_PREFIX) if len(raw) == 44 else raw
    if len(raw) != 32:
        raise ValueError(f"line {number}: not an Ed25519 public key")
    return raw


def _public(raw: bytes, number: int) -> Ed25519PublicKey:
    try:
        key: Ed25519PublicKey = _ed25519()[1].from_public_bytes(raw)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None
    return key


def _read_private(pem: bytes) -> Ed25519PrivateKey:
    private_kind, _ = _ed25519()
    try:
        private: Any = _serialization().load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise ValueError("the approver's key cannot be read; it must be an Ed25519 key in PEM, no password") from None
    if not isinstance(private, private_kind):
        raise ValueError("the approver's key must be an Ed25519 key")
    key: Ed25519PrivateKey = private
    return key


def _ed25519() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ValueError("signed approvals need the package cryptography, which is not installed") from None
    return ed25519.Ed25519PrivateKey, ed25519.Ed25519PublicKey


def _serialization() -> Any:
    from cryptography.hazmat.primitives import serialization

    return serialization
