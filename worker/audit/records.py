"""What an audit file holds: one record a line, each naming the hash of the line before it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from contracts.levels import Level

GENESIS = "0" * 64
"""What the first record of a worker names as the hash before it."""
MAX_FIELD_CHARS = 512
MAX_ARGS_CHARS = 4096

CheckpointReason = Literal["interval", "rotated", "closed"]


class AuditMark(Struct, frozen=True):
    """A record's number and the SHA-256 of its line: kept elsewhere, it proves that all records up to it are there."""

    seq: int
    hash: str


class FileChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a call replaced: its path from the workspace's root, and the SHA-256 of its bytes before and after.

    `before` is empty where there was no file, `?` where it was too large to be hashed beside a write.
    """

    path: str
    before: str = ""
    after: str = ""


class Record(Struct, frozen=True, kw_only=True, tag_field="entry", forbid_unknown_fields=True):
    """What every record has. `seq` counts from 1 over all files of a worker; `prev` is the hash of the line before."""

    seq: int
    at_ms: int
    prev: str


class Opened(Record, frozen=True, kw_only=True, tag="opened", omit_defaults=True):
    """The first record of each file. A file before it that a crash left with half a line is vouched for by `torn_*`."""

    v: int
    worker: str
    file: int
    pid: int
    torn_bytes: int = 0
    torn_sha256: str = ""


class Decided(Record, frozen=True, kw_only=True, tag="decided", omit_defaults=True):
    """A verdict, written before anything starts. `args` is the digest of the arguments, `args_text` them, redacted.

    `version` is that of the operator's rules; `approver` said yes where the verdict is `approved`.
    """

    job: str
    tool: str
    args: str
    verdict: str
    policy: str
    rule: str
    attempt: int
    args_text: str = ""
    version: str = ""
    approver: str = ""


class Finished(Record, frozen=True, kw_only=True, tag="finished", omit_defaults=True):
    """How a call ended: completed, denied or failed, its code (empty if completed), and the levels given to it.

    `files` are those it replaced. `opened` are paths it opened, where the level is not PUBLIC: what brought it.
    """

    job: str
    outcome: str
    code: str
    level: Level
    taint: Level
    files: list[FileChange] = []
    opened: list[str] = []


class Dropped(Record, frozen=True, kw_only=True, tag="dropped"):
    """How many records of reads, or of calls that had ended, could not be kept while the disk refused them."""

    count: int


class Checkpoint(Record, frozen=True, kw_only=True, tag="checkpoint", omit_defaults=True):
    """Vouches for all before it. `alg` "none" says that no key was configured, so that it vouches for nothing."""

    worker: str
    file: int
    reason: CheckpointReason
    alg: Literal["none", "hmac-sha256", "ed25519"]
    key: str = ""
    signature: str = ""


AnyRecord = Opened | Decided | Finished | Dropped | Checkpoint


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)


encode: Callable[[AnyRecord], bytes] = _encoder.encode
"""The record as the bytes of its line, without the newline."""


def decode(line: bytes) -> AnyRecord:
    """A line as a record.

    Raises:
        ValueError: it is none of ours.
    """
    return _decoder.decode(line)


def hash_of(line: bytes) -> str:
    """The hash that the next record names."""
    return hashlib.sha256(line).hexdigest()


def printable(text: str, max_chars: int = MAX_FIELD_CHARS) -> str:
    """Text that can be written whatever an agent sent: cut to length, without lone surrogates."""
    text = text[:max_chars]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def all_printable(*texts: str) -> Sequence[str]:
    """Each as `printable` leaves it; nearly always nothing need be done, which one look tells."""
    joined = "".join(texts)
    return texts if len(joined) <= MAX_FIELD_CHARS and joined.isascii() else [printable(text) for text in texts]


def file_name(worker: str, number: int) -> str:
    """The name of a worker's file of that number, counted from 1."""
    return f"{worker}.{number:06}.jsonl"


def files_of(directory: Path) -> dict[str, list[tuple[int, Path]]]:
    """All audit files of a directory by worker, in order."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in directory.iterdir():
        named = re.fullmatch(r"(.+)\.([0-9]{6,})\.jsonl", path.name)
        if named:
            found.setdefault(named.group(1), []).append((int(named.group(2)), path))
    for files in found.values():
        files.sort()
    return found
