"""What the settings keep secret or sign with: the redactor, what commands may be given, the audit log's key."""

from __future__ import annotations

from worker.audit import AuditLog
from worker.secrets import Redactor
from worker.secrets.placeholders import SecretStore, read_secret_tools
from worker.settings import Settings, SettingsError, url_passwords


def redactor_of(settings: Settings, redis_url: str) -> Redactor:
    """Redacts the configured secrets, and the passwords of the Redis URLs, which commands must never show.

    Raises:
        SettingsError: a secret can't be looked for.
    """
    try:
        return Redactor({**known_secrets(settings), **url_passwords(settings, redis_url)})
    except ValueError as error:
        raise SettingsError(f"TOOLREEF_SECRETS_FILE: {error}") from None


def secret_store(settings: Settings) -> SecretStore:
    """What commands may be given.

    Raises:
        SettingsError: TOOLREEF_SECRET_TOOLS can't be used.
    """
    try:
        return SecretStore(known_secrets(settings), read_secret_tools(settings.secret_tools))
    except ValueError as error:
        raise SettingsError(f"TOOLREEF_SECRET_TOOLS: {error}") from None


def known_secrets(settings: Settings) -> dict[str, str]:
    """The configured secrets by name: a file of `name=value` lines.

    Raises:
        SettingsError: a line has no name.
    """
    if settings.secrets_file is None:
        return {}
    secrets = {}
    for number, line in enumerate(settings.secrets_file.read_text().splitlines(), 1):
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals or not name.strip():
                raise SettingsError(f"TOOLREEF_SECRETS_FILE: line {number} is not name=value")
            secrets[name.strip()] = value.strip()
    return secrets


def open_audit(settings: Settings, worker: str) -> AuditLog:
    """The audit log of one process, signed if there is a key.

    Raises:
        AuditUnavailable: it can't be opened.
        SettingsError: the key can't be used.
    """
    file = settings.audit_key_file
    try:
        key = None if file is None else file.read_bytes()
        return AuditLog.open(settings.state / "audit", worker=worker, key=key, fsync=settings.audit_fsync)
    except OSError as error:
        raise SettingsError(f"TOOLREEF_AUDIT_KEY_FILE: {file} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"TOOLREEF_AUDIT_KEY_FILE: {error}") from None
