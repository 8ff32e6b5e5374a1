"""What redaction costs, and what it takes for a secret in text that has none.

    python -m bench.redaction [DIRECTORY ...]

Reads every text file beneath the directories (the standard library and the installed packages if none are given),
prints hits a rule and megabyte with examples to judge them by, the speed without and with known values, the speed of
streaming, of hostile text, and the time for a small output. All times are processor time, so that a busy machine
does not count.
"""

from __future__ import annotations

import sys
import sysconfig
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from contracts.tools import RunCommandOutput
from worker.secrets import RULES, Redactor, StreamRedactor, redact_output

MAX_FILE_BYTES = 2_000_000
MAX_TOTAL_CHARS = 400_000_000
EXAMPLES = 3


def _texts(directories: list[Path]) -> Iterator[tuple[Path, str]]:
    total = 0
    for directory in directories:
        for path in sorted(directory.rglob("*")):
            if total > MAX_TOTAL_CHARS:
                return
            try:
                if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
                    continue
                text = path.read_bytes().decode("utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            if "\0" not in text:
                total += len(text)
                yield path, text


def _best_s(work: Callable[[], object], times: int = 3) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def _false_alarms(directories: list[Path], redactor: Redactor) -> list[str]:
    hits: Counter[str] = Counter()
    examples: dict[str, list[str]] = defaultdict(list)
    files = characters = 0
    elapsed = 0.0
    clean: list[str] = []
    for path, text in _texts(directories):
        files, characters = files + 1, characters + len(text)
        start = time.process_time()
        spans = redactor.spans(text)
        elapsed += time.process_time() - start
        if not spans and sum(map(len, clean)) < 20_000_000:
            clean.append(text)
        for span in spans:
            hits[span.rule] += 1
            if len(examples[span.rule]) < EXAMPLES:
                examples[span.rule].append(f"{path}: {text[max(span.start - 25, 0) : span.end + 10]!r:.110}")
    megabytes = characters / 1e6
    print(f"{files} files, {megabytes:.1f} MB of text, {megabytes / elapsed:.0f} MB/s file by file\n")
    print("| rule | hits | hits/MB |\n|---|---|---|")
    for name in sorted({rule.name for rule in RULES} | set(hits), key=lambda name: (-hits[name], name)):
        print(f"| {name} | {hits[name]} | {hits[name] / megabytes:.4f} |")
        for example in examples[name]:
            print(f"|    {example} |")
    return clean


def _speed(name: str, text: str, work: Callable[[str], object]) -> None:
    print(f"| {name} | {len(text) / 1e6 / _best_s(lambda: work(text)):.1f} MB/s |")


def _stream(redactor: Redactor, text: str, chunk_chars: int = 64 * 1024) -> None:
    stream = StreamRedactor(redactor)
    for place in range(0, len(text), chunk_chars):
        stream.feed(text[place : place + chunk_chars])
    stream.finish()


def main() -> None:
    paths = sysconfig.get_paths()
    directories = [Path(name) for name in sys.argv[1:]] or [Path(paths["stdlib"]), Path(paths["purelib"])]
    redactor = Redactor()
    text = "\n".join(_false_alarms(directories, redactor))
    print(f"\n| {len(text) / 1e6:.1f} MB without hits | |\n|---|---|")
    _speed("one text", text, redactor.redact)
    for count in (5, 20):
        known = Redactor({f"S{number}": f"{number}-Known-secret-value-{number * 7919:x}" for number in range(count)})
        _speed(f"with {count} known values", text[:5_000_000], known.redact)
    _speed("in chunks of 64 KiB", text[:5_000_000], lambda each: _stream(redactor, each))
    _speed("not ASCII", "é" + text[:5_000_000], redactor.redact)
    for unit in (
        "a",
        "0",
        "4111 ",
        "AA00",
        "DE00",
        "eyJaaaaaaaaaaaaa.",
        "://a:",
        "-----BEGIN PRIVATE KEY-----\n",
        "SK",
    ):
        _speed(f"hostile {unit!r}", unit * (500_000 // len(unit)), redactor.redact)
    output = RunCommandOutput(stdout="total 4\n-rw-r--r-- 1 a a 12 Jan  1 00:00 a.txt\n", stderr="", exit_code=0)
    rounds = 20_000
    small_s = _best_s(lambda: [redact_output(output, redactor) for _ in range(rounds)])
    print(f"| redact_output of a small output | {small_s / rounds * 1e6:.1f} us |")


if __name__ == "__main__":
    main()
