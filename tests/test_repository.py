"""House rules that no other tool checks. A remark made twice becomes a test here."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from contracts import keys
from contracts.calls import read_job_id
from contracts.codec import decode_call
from contracts.tools import TOOLS

ROOT = Path(__file__).parents[1]
CODE = ("contracts", "worker", "bench", "examples")
MAX_FILE_LINES = 320  # "about 300": a file may not be rewritten for a line
MAX_FUNCTION_LINES = 55

LONG_FILES: dict[str, tuple[int, str]] = {
    "worker/queue.py": (400, "everything of arq's Worker that has to be ours stands in one place, to compare with it"),
    "worker/shell/run.py": (345, "what a command may start, one step after the other as the shell takes them"),
    "worker/shell/reader.py": (480, "one grammar, whose productions call each other"),
}
"""Path: the ceiling it may not pass, and why it is one piece. Lower the ceiling when the file shrinks."""

LONG_FUNCTIONS: dict[str, tuple[int, str]] = {
    "worker/dashboard/overview.py:problems_of": (70, "one list of what can be wrong with a queue, the worst first"),
}
"""path:function, as above."""

FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "service", "services", "misc"}

# In pieces, so that this file does not break its own rule.
PLACES = re.compile(
    "|".join(
        [
            "pypi" + r"\.org",
            "pythonhosted" + r"\.org",
            "registry\\.npmjs" + r"\.org",
            "deb\\.debian" + r"\.org",
            "--(?:extra-)?index-url" + r"[ =]\S",
            "--find-links" + r"[ =]\S",
            "(?<![\\w.])/work" + r"/[a-z.]",
            "/root" + r"/\.pyenv",
            "file" + r":///",
        ]
    )
)


def committed() -> list[Path]:
    """The files of the repository: what git knows, else, in an unpacked archive, what lies there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    hidden = re.compile(r"(^|/)(\.(?!ci|gitignore|dockerignore)|__pycache__|build|dist)")
    return [path for path in ROOT.rglob("*") if path.is_file() and not hidden.search(str(path.relative_to(ROOT)))]


FILES = committed()
MODULES = [path for path in FILES if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in CODE]
SCRIPTS = sorted((ROOT / "worker/lua").glob("*.lua"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function's name, with its class, and its length in lines."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                assert child.end_lineno is not None
                yield f"{name_of(path)}:{prefix}{child.name}", child.end_lineno - child.lineno + 1
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            yield from walk(child, f"{prefix}{child.name}." if named else prefix)  # type: ignore[attr-defined]

    yield from walk(parsed(path), "")


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 50
    assert len(SCRIPTS) > 5


def test_no_file_grows_past_its_line() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in [*MODULES, *SCRIPTS]}
    too_long = {
        name: length for name, length in lengths.items() if length > LONG_FILES.get(name, (MAX_FILE_LINES, ""))[0]
    }
    assert too_long == {}
    assert {name for name in LONG_FILES if lengths.get(name, 0) <= MAX_FILE_LINES} == set(), "no exception any more"


def test_no_function_grows_past_its_line() -> None:
    lengths = {name: length for path in MODULES for name, length in functions(path)}
    too_long = {
        name: length
        for name, length in lengths.items()
        if length > LONG_FUNCTIONS.get(name, (MAX_FUNCTION_LINES, ""))[0]
    }
    assert too_long == {}
    still = {name for name in LONG_FUNCTIONS if lengths.get(name, 0) <= MAX_FUNCTION_LINES}
    assert still == set(), "no exception any more"


def test_modules_are_named_for_what_they_hold() -> None:
    parts = {name_of(path): {*path.relative_to(ROOT).with_suffix("").parts} for path in MODULES}
    assert {name for name, words in parts.items() if words & FORBIDDEN_NAMES} == set()


def test_every_module_says_what_it_is() -> None:
    silent = [
        name_of(path)
        for path in MODULES
        if path.read_text(encoding="utf-8").strip() and not ast.get_docstring(parsed(path))
    ]
    assert silent == []


def test_only_the_settings_read_the_environment() -> None:
    readers = set()
    for path in MODULES:
        if path.relative_to(ROOT).parts[0] not in ("contracts", "worker"):
            continue
        for node in ast.walk(parsed(path)):
            attribute = isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv", "putenv")
            imported = isinstance(node, ast.ImportFrom) and node.module == "os" and "environ" in ast.dump(node)
            if attribute or imported:
                readers.add(name_of(path))
    assert readers == {"worker/settings.py"}


def test_no_file_names_a_registry_or_a_machines_folder() -> None:
    found = []
    for path in FILES:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{name_of(path)}:{number}: {hit[0]}"
            for number, line in enumerate(text.splitlines(), 1)
            if (hit := PLACES.search(line))
        ]
    assert found == []


def make_targets() -> dict[str, str]:
    lines = (ROOT / "Makefile").read_text().splitlines()
    found = [re.match(r"([a-z-]+):([^#]*)(?:## (.+))?$", line) for line in lines if not line.startswith(".")]
    return {match[1]: match[3] or "" for match in found if match}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_commands_on_a_page_exist(page: str) -> None:
    code = "\n".join(re.findall(r"```.*?```|`[^`]+`|^    [^\n]*$", (ROOT / page).read_text(), re.S | re.M))
    used = set(re.findall(r"(?<![\w.-])make ([a-z][a-z-]*)", code))
    assert used
    assert used <= set(make_targets())


def test_the_make_targets_that_people_use_are_explained() -> None:
    explained = {target for target, text in make_targets().items() if text}
    wanted = "help setup demo up test check lint type bench chaos schemas lock clean"
    assert explained >= set(wanted.split())
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([a-z-]+) ", shown, re.M)) == explained


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_script_says_what_it_takes_and_returns(path: Path) -> None:
    lines = path.read_text().splitlines()
    if path.name.startswith("_"):
        assert lines[0].startswith("-- Shared by the scripts")
        return
    assert re.fullmatch(r"#!lua( flags=[a-z,-]+)?", lines[0])
    header = "\n".join(line for line in lines[1:] if line.startswith("--"))
    assert re.match(r"-- [A-Z].*[.:]", header), "a sentence first"
    numbered = {
        word: [int(number) for number in re.findall(r"(?:^|[ ,])(\d+) [a-zA-Z']", "".join(rows.splitlines()))]
        for word, rows in re.findall(r"^-- (KEYS|ARGV): (.*(?:\n--   .*)*)", header, re.M)
    }
    assert set(numbered) == {"KEYS", "ARGV"}
    assert numbered["KEYS"][:1] == [1]
    assert numbered["ARGV"][:1] == [1]
    assert re.search(r"^-- Returns: \S", header, re.M)


def test_the_changelog_knows_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    released = re.findall(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert released[0] == ("Unreleased", "")
    assert released[1][0] == version
    assert all(date for _, date in released[1:])


def test_the_readme_tells_of_every_tool() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name for name in TOOLS if f"`{name}`" not in text] == []


def test_the_raw_call_in_the_readme_is_one() -> None:
    text = (ROOT / "README.md").read_text()
    set_job = re.search(r"^    SET (\S+) '(.+)' NX PX \d+$", text, re.M)
    add = re.search(r"^    ZADD (\S+) NX (\d+) (\S+)$", text, re.M)
    others = re.findall(r"^    (?:LPUSH|XREAD .*STREAMS) (\S+)", text, re.M)
    assert set_job
    assert add
    job = read_job_id(add[3])
    call, _ = decode_call(job, set_job[2].encode())
    assert call.tool == "read_file"
    assert (set_job[1], add[1]) == (keys.job(job.queue, job.session, job.call), keys.queue(job.queue))
    assert others == [keys.bell(job.queue), keys.replies(job.queue, job.session)]


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-dev.txt", "requirements-lock.txt"])
def test_locks_pin_every_file_and_name_no_place(lock: str) -> None:
    entries = (ROOT / lock).read_text().replace("\\\n", "").splitlines()
    form = re.compile(r"[a-z0-9.-]+==[^ ;]+( ; [^-]+)?( +--hash=sha256:[0-9a-f]{64})+ *")
    assert [entry[:80] for entry in entries if not form.fullmatch(entry)] == []


def test_the_lock_for_developing_holds_the_lock_for_running() -> None:
    run, dev = ((ROOT / lock).read_text() for lock in ("requirements.txt", "requirements-dev.txt"))
    pins = re.findall(r"^([a-z0-9.-]+==[^ \\]+)", run, re.M)
    assert len(pins) > 15
    assert [pin for pin in pins if not re.search(rf"^{re.escape(pin)}[ \\]", dev, re.M)] == []


def test_what_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    declared = {re.split(r"[^A-Za-z0-9-]", line)[0].lower().replace("-", "_") for line in listed}
    distributions = packages_distributions()
    imported: dict[str, str] = {}
    for path in MODULES:
        if path.relative_to(ROOT).parts[0] not in ("contracts", "worker"):
            continue
        for node in ast.walk(parsed(path)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            imported |= {module.split(".")[0]: name_of(path) for module in modules}
    foreign = {
        name: path for name, path in imported.items() if name not in {*sys.stdlib_module_names, "contracts", "worker"}
    }
    undeclared = {
        name: path
        for name, path in foreign.items()
        if not declared & {each.lower().replace("-", "_") for each in distributions.get(name, [name])}
    }
    assert undeclared == {}
