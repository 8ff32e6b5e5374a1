"""Redaction of every text in a tool's output, an error or any other struct."""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, Protocol, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from contracts.levels import Level, highest
from worker.secrets.redactor import Redacted

T = TypeVar("T")


class Redacts(Protocol):
    """What redaction needs of a redactor."""

    def is_clean(self, text: str) -> bool:
        """False if `redact` must look at the texts that were joined to this one."""

    def redact(self, text: str) -> Redacted:
        """The text without what must not be in it."""


def redact_output(output: T, redactor: Redacts) -> tuple[T, Level, tuple[str, ...]]:
    """The output without its secrets, the level that they give it, and the rules that hit, sorted.

    `output` is a struct, or plain lists, dicts and values. What is clean is returned as it is, the same object.
    """
    texts: list[str] = []
    _collect(output, texts)
    if redactor.is_clean("\n".join(texts)):
        return output, Level.PUBLIC, ()
    levels: list[Level] = []
    hits: set[str] = set()
    redacted = _rebuilt(output, redactor, levels, hits)
    return redacted, highest(levels), tuple(sorted(hits))


def _collect(value: Any, texts: list[str]) -> None:
    kind = type(value)
    if kind is str:
        texts.append(value)
    elif kind is list or kind is tuple:
        for item in value:
            _collect(item, texts)
    elif kind is dict:
        for key, item in value.items():
            _collect(key, texts)
            _collect(item, texts)
    elif isinstance(value, Struct):
        for name in _FIELDS.get(kind) or _fields_with_text(kind):
            item = getattr(value, name)
            if item.__class__ is str:
                texts.append(item)
            elif item is not None:
                _collect(item, texts)


_FIELDS: dict[type[Struct], tuple[str, ...]] = {}
_NO_TEXT = (int, float, bool, type(None))


def _fields_with_text(kind: type[Struct]) -> tuple[str, ...]:
    """The fields of a struct that can hold text; found once a struct.

    Without `sha256`, the worker's own: as a run of token characters it would cost more than a page of text.
    """
    names = []
    for each in msgspec.structs.fields(kind):
        union = get_origin(each.type) in (Union, UnionType)
        parts = [part for part in (get_args(each.type) if union else (each.type,)) if get_origin(part) is not Literal]
        if each.name != "sha256" and not all(part in _NO_TEXT for part in parts):
            names.append(each.name)
    _FIELDS[kind] = tuple(names)
    return _FIELDS[kind]


def _rebuilt(value: Any, redactor: Redacts, levels: list[Level], hits: set[str]) -> Any:
    if isinstance(value, str):
        redacted = redactor.redact(value)
        levels.append(redacted.level)
        hits.update(redacted.rules_hit)
        return redacted.text if redacted.rules_hit else value
    if isinstance(value, list | tuple):
        return type(value)(_rebuilt(item, redactor, levels, hits) for item in value)
    if isinstance(value, dict):
        return {
            _rebuilt(key, redactor, levels, hits): _rebuilt(item, redactor, levels, hits) for key, item in value.items()
        }
    if isinstance(value, Struct):
        changed = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            after = _rebuilt(before, redactor, levels, hits)
            if after is not before:
                changed[name] = after
        return msgspec.structs.replace(value, **changed) if changed else value
    return value
