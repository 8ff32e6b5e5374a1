"""exception -> Failed, one table. Tools raise ordinary exceptions where they fit, CallFailed for the rest."""

from __future__ import annotations

import errno
import logging
import secrets

from msgspec import Struct, ValidationError

from contracts.replies import EFFECT_OF_CODE, EffectState, Error, ErrorCode
from contracts.tools import Output

log = logging.getLogger("toolreef")


class CallFailed(Exception):
    """A failure with a code of the closed set. `output` travels with the reply where there is some (a time-out's)."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        hint: str | None = None,
        retryable: bool = False,
        retry_after_ms: int | None = None,
        effect: EffectState | None = None,
        output: Output | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms
        self.effect = effect
        self.output = output


class _Row(Struct, frozen=True):
    code: ErrorCode
    message: str
    hint: str | None = None
    retryable: bool = False


_BY_ERRNO: dict[int, _Row] = {
    errno.ENOENT: _Row("not_found", "no such file or directory"),
    errno.ENOTDIR: _Row("wrong_kind", "a part of the path is not a directory"),
    errno.EISDIR: _Row("wrong_kind", "is a directory"),
    errno.EEXIST: _Row("conflict", "exists already"),
    errno.EACCES: _Row("permission", "permission denied"),
    errno.EPERM: _Row("permission", "operation not permitted"),
    errno.EROFS: _Row("permission", "read-only file system"),
    errno.ELOOP: _Row("wrong_kind", "too many levels of symbolic links"),
    errno.ENAMETOOLONG: _Row("invalid_call", "the path or one of its names is too long"),
    errno.ENOSPC: _Row("no_space", "no space left on device", "remove something, then try again", True),
    errno.EDQUOT: _Row("no_space", "disk quota exceeded", "remove something, then try again", True),
    errno.EFBIG: _Row("too_large", "file too large"),
    errno.EMFILE: _Row("unavailable", "the worker has too many open files", "try again later", True),
    errno.ENFILE: _Row("unavailable", "the host has too many open files", "try again later", True),
}


def is_ordinary(error: OSError) -> bool:
    """Whether the table has a row for it, so that it is nobody's surprise."""
    return error.errno in _BY_ERRNO


def classify(error: BaseException, *, incident_of: str = "") -> Error:
    """The wire form of an exception. What is in no table becomes `internal`, and its traceback goes to the log only.

    File names from the exception are left out: they may be the host's. Tools that want a path in the message raise
    CallFailed with the path as the agent wrote it.
    """
    if isinstance(error, CallFailed):
        return error_of(
            error.code,
            str(error),
            hint=error.hint,
            retryable=error.retryable,
            retry_after_ms=error.retry_after_ms,
            effect=error.effect,
        )
    if isinstance(error, OSError) and error.errno in _BY_ERRNO:
        row = _BY_ERRNO[error.errno]
        return error_of(row.code, row.message, hint=row.hint, retryable=row.retryable)
    if isinstance(error, ValidationError):
        return error_of("invalid_call", str(error))
    incident = secrets.token_hex(6)
    log.error("incident %s in %s", incident, incident_of, exc_info=error)
    return error_of(
        "internal", f"unexpected error, incident {incident}", incident=incident, hint="tell the operator the incident"
    )


def error_of(
    code: ErrorCode,
    message: str,
    *,
    hint: str | None = None,
    retryable: bool = False,
    retry_after_ms: int | None = None,
    effect: EffectState | None = None,
    policy: str | None = None,
    rule: str | None = None,
    incident: str | None = None,
    digest: str | None = None,
    policy_version: str | None = None,
) -> Error:
    """An error with the code's usual effect unless another is given."""
    return Error(
        code=code,
        message=message,
        effect=effect or EFFECT_OF_CODE[code],
        retryable=retryable,
        retry_after_ms=retry_after_ms,
        hint=hint,
        policy=policy,
        rule=rule,
        incident=incident,
        digest=digest,
        policy_version=policy_version,
    )
