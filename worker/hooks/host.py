"""The process in which hooks of other packages run: `python -m worker.hooks.host MEMORY_BYTES`.

Frames on standard input and output: four bytes of length, big-endian, then JSON. It may be killed at any moment.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, BinaryIO

import msgspec

from contracts.hooks import POST_TOOL_RESPONSE, PRE_TOOL_CALL, AnswerEvent, Ask, CallEvent, Deny, Rewrite, Withhold
from contracts.levels import highest

PR_SET_PDEATHSIG = 1

Hook = Callable[[Any], Any]

_decode_event = msgspec.json.Decoder(CallEvent | AnswerEvent).decode


def main() -> None:
    """Answers events until standard input ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What a hook prints must not be read as an answer, nor what it reads be an event.
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    hooks = _load(answers)
    while (event := _read(requests)) is not None:
        try:
            _answer(_decode_event(event), hooks, answers)
        except MemoryError:
            os._exit(1)


def _load(answers: BinaryIO) -> dict[str, list[tuple[str, Hook]]]:
    hooks: dict[str, list[tuple[str, Hook]]] = {}
    for group in (PRE_TOOL_CALL, POST_TOOL_RESPONSE):
        hooks[group] = []
        for point in sorted(entry_points(group=group), key=lambda point: point.name):
            _say(answers, {"at": point.name})
            try:
                hook = point.load()
                if not callable(hook):
                    raise TypeError(f"{point.value} can't be called")
            except BaseException:  # noqa: BLE001 - whatever an import does, SystemExit included, is told and ends this
                _say(answers, {"error": point.name, "text": traceback.format_exc()[-4096:]})
                os._exit(1)
            hooks[group].append((point.name, hook))
    _say(answers, {"ready": {group: [name for name, _ in named] for group, named in hooks.items()}})
    return hooks


def _answer(event: CallEvent | AnswerEvent, hooks: dict[str, list[tuple[str, Hook]]], answers: BinaryIO) -> None:
    """Asks the event's hooks in the order of their names. The first Deny or Withhold ends it."""
    after = isinstance(event, AnswerEvent)
    kinds: tuple[type, ...] = (Withhold, Rewrite) if after else (Deny, Ask)
    said: list[dict[str, Any]] = []
    for name, hook in hooks[POST_TOOL_RESPONSE if after else PRE_TOOL_CALL]:
        _say(answers, {"at": name})
        try:
            answer = hook(event)
            if answer is None:
                continue
            if not isinstance(answer, kinds):
                raise TypeError(f"a hook gave back {type(answer).__name__}")
            said.append({"name": name, "answer": answer})
            if isinstance(answer, Rewrite) and isinstance(event, AnswerEvent):
                output = event.output if answer.output is None else answer.output
                event = msgspec.structs.replace(event, output=output, level=highest((event.level, answer.level)))
            msgspec.json.encode(answer)
        except BaseException:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a hook are failures like any other
            _say(answers, {"error": name, "text": traceback.format_exc()[-4096:]})
            return
        if isinstance(answer, Deny | Withhold):
            break
    _say(answers, {"said": said})


def _read(requests: BinaryIO) -> bytes | None:
    head = requests.read(4)
    return requests.read(int.from_bytes(head)) if len(head) == 4 else None


def _say(answers: BinaryIO, words: dict[str, Any]) -> None:
    data = msgspec.json.encode(words)
    answers.write(len(data).to_bytes(4) + data)
    answers.flush()


if __name__ == "__main__":
    main()
