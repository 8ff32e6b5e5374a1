"""What a command runs besides itself."""

from __future__ import annotations

from typing import NamedTuple


class Inner(NamedTuple):
    """One thing a command runs.

    `kind` is argv (value: fields), script (text for a shell), code (text in `language`) or file (a path to be run).
    `label` says by what, for the trail. `stdin` is None where the outer's goes through. `params` are `$1`, ..., `zero`
    is `$0`, `cwd` the directory it changes to before.
    """

    kind: str
    value: tuple[str, ...] | str
    label: str
    stdin: str | None = None
    language: str = ""
    params: tuple[str, ...] = ()
    zero: str = ""
    cwd: str = ""


def argv(fields: list[str] | tuple[str, ...], label: str, stdin: str | None = None) -> list[Inner]:
    """A command given as separate words; nothing when there are none."""
    return [Inner("argv", tuple(fields), label, stdin)] if fields else []


def script(text: str, label: str, params: list[str] | tuple[str, ...] = ()) -> list[Inner]:
    """A text for a shell."""
    return [Inner("script", text, label, params=tuple(params))] if text else []


def code(text: str, language: str, label: str) -> list[Inner]:
    """A program in another language."""
    return [Inner("code", text, label, language=language)] if text else []


def file(path: str, language: str, label: str, params: list[str] | tuple[str, ...] = ()) -> list[Inner]:
    """A file to be run: known only if the same line wrote it."""
    return [Inner("file", path, label, language=language, params=tuple(params))]
