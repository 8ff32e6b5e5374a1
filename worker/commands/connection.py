"""What every command shares: its settings, its Redis, its exit statuses, and how it speaks."""

from __future__ import annotations

import asyncio
import sys
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from contracts.codec import encode
from contracts.connection import UNREACHABLE
from contracts.signing import ApproverKey
from worker.embedded import EmbeddedUnavailable, open_redis
from worker.settings import Settings, SettingsError, read_settings

REDIS_ERROR = UNREACHABLE[0]

OK, FAULT, USAGE, DENIED, FAILED, UNANSWERED = 0, 1, 2, 3, 4, 5


class UsageError(Exception):
    """The command line asks for something that makes no sense; the message says what and where."""


def say(value: Any) -> None:
    """One JSON line on standard output."""
    sys.stdout.write(encode(value).decode() + "\n")
    sys.stdout.flush()


def complain(message: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"toolreef: {message}\n")


def add_queue(parser: ArgumentParser) -> None:
    """--queue, with TOOLREEF_QUEUE as its default."""
    parser.add_argument("--queue", help="the queue (default: TOOLREEF_QUEUE, else 'default')")


class Parser(ArgumentParser):
    """An option given empty is refused, unless that is its default: mostly it is a variable that was not set."""

    def add_argument(self, *names: str, **settings: Any) -> Action:
        """Adds an argument. One whose type is given, `str` for a text, sees to empty values itself."""
        is_text = settings.get("action", "store") in ("store", "append") and "type" not in settings
        if names[0].startswith("-") and is_text and settings.get("default") != "":
            settings["type"] = _given
        return super().add_argument(*names, **settings)


def _given(text: str) -> str:
    if not text:
        raise ArgumentTypeError("must not be empty; leave the option out for its default")
    return text


def add_session(parser: ArgumentParser, *, required: bool = True) -> None:
    """--session."""
    parser.add_argument("--session", required=required, help="the session's name")


def settings_of(options: Namespace) -> Settings:
    """The settings, with what the command line says on top."""
    queue = getattr(options, "queue", None)
    return read_settings(queue=queue if isinstance(queue, str) else None)


def approver_key(settings: Settings) -> ApproverKey | None:
    """The key that verdicts are signed with, None where they are not signed.

    Raises:
        SettingsError: TOOLREEF_APPROVER_KEY can't be used.
    """
    if settings.approver_key is None:
        return None
    try:
        return ApproverKey.read(settings.approver_key)
    except (OSError, ValueError) as error:
        raise SettingsError(f"TOOLREEF_APPROVER_KEY: {getattr(error, 'strerror', None) or error}") from None


@contextmanager
def redis_of(settings: Settings) -> Iterator[str]:
    """The URL of REDIS_URL's server, else of the state directory's embedded one, kept up meanwhile.

    Raises:
        EmbeddedUnavailable: there is none and none can be started.
    """
    with open_redis(settings.redis_url, settings.state) as url:
        yield url


def run_against_redis(options: Namespace, act: Callable[[Settings, str], Coroutine[Any, Any, int]]) -> int:
    """Runs `act` with the settings and the server's URL; gives back its exit status."""
    settings = settings_of(options)
    with redis_of(settings) as url:
        return asyncio.run(act(settings, url))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what a user can cause into SystemExit with one line on standard error and the designed status."""
    try:
        yield
    except (UsageError, SettingsError, ValueError) as error:
        complain(str(error))
        raise SystemExit(USAGE) from None
    except EmbeddedUnavailable as error:
        complain(str(error))
        raise SystemExit(FAILED) from None
    except BrokenPipeError:
        # Whoever read our output has gone; that is not an error worth words.
        sys.stderr.close()
        raise SystemExit(FAULT) from None
    except (ConnectionError, REDIS_ERROR) as error:
        complain(f"Redis does not serve us: {error}; is REDIS_URL right and the server up?")
        raise SystemExit(FAILED) from None
    except OSError as error:
        complain(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
        raise SystemExit(FAULT) from None
