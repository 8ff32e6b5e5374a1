"""run_command behind every wall: what agents have seen go wrong with commands elsewhere, and must not here."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from contracts.tools import RunCommandOutput
from tests.walled import WALLS, Commands, Wall, alive, walled
from worker.process import Limits
from worker.workspace import Workspace


@pytest.fixture(scope="module", params=WALLS)
def wall(request: pytest.FixtureRequest) -> Wall:
    found: Wall = request.param
    return found


@pytest.fixture(scope="module")
def shared(wall: Wall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with walled(wall, tmp_path_factory.mktemp("shared")) as commands:
        yield commands


@pytest.fixture
def commands(shared: Commands, tmp_path: Path) -> Iterator[Commands]:
    """A workspace of its own behind the shared wall."""
    with Workspace.open(str(tmp_path / "workspace")) as workspace:
        yield Commands(workspace, shared.sandbox, Limits())


def shape(output: RunCommandOutput) -> tuple[str, str, int | None, str | None]:
    return output.stdout, output.stderr, output.exit_code, output.signal


def test_answers_with_output_and_exit_code(commands: Commands) -> None:
    output = commands.run("echo out; echo err >&2; exit 7")
    assert shape(output) == ("out\n", "err\n", 7, None)
    assert not output.timed_out
    assert (output.limits_hit, output.notes, output.spill, output.truncated) == ([], [], None, False)


@pytest.mark.parametrize(
    "command, stdout",
    [
        ("sleep 300 & echo done", "done\n"),
        ("setsid sleep 300 >/dev/null & echo done", "done\n"),
        ("(trap '' TERM HUP; while :; do sleep 0.05; done) & echo done", "done\n"),
    ],
)
def test_background_children_hold_no_answer_open(commands: Commands, command: str, stdout: str) -> None:
    """P49."""
    started = time.monotonic()
    output = commands.run(command)
    assert (output.stdout, output.exit_code) == (stdout, 0)
    assert len(output.notes) == 1
    assert output.notes[0].startswith("ended processes that outlived the shell: ")
    assert time.monotonic() - started < 10


def test_a_child_that_keeps_printing_holds_no_answer_open(commands: Commands) -> None:
    """P49."""
    output = commands.run("(while :; do echo tick; sleep 0.05; done) & sleep 0.3; echo fg-done")
    assert "fg-done\n" in output.stdout
    assert output.exit_code == 0


def test_what_a_child_writes_just_after_the_shell_ended_is_there(commands: Commands) -> None:
    assert commands.run("exec > >(cat > copy; cat copy); echo text").stdout == "text\n"


def test_a_time_out_ends_the_whole_tree_and_keeps_the_output(commands: Commands) -> None:
    """P50."""
    marker = f"reef-{time.monotonic_ns()}"
    command = f"echo before; for i in 1 2 3; do (exec -a {marker} bash -c 'trap \"\" TERM; while :; do :; done') & done"
    failure = commands.fail(f"{command}; setsid bash -c ': {marker}; sleep 300' & wait", "timeout", timeout_s=0.7)
    output = failure.output
    assert isinstance(output, RunCommandOutput)
    assert (output.stdout, output.timed_out, output.exit_code, output.signal) == ("before\n", True, 137, "KILL")
    assert output.limits_hit == ["wall"]
    assert alive(marker) == []


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_cancelling_ends_the_whole_tree_at_once(
    commands: Commands, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """P50."""
    beat = commands.root / "beat.txt"
    said = asyncio.Event()

    async def progress(*_: Any) -> None:
        said.set()

    context = commands.context(progress=progress)

    async def cancel() -> None:
        task = asyncio.create_task(
            commands.start("echo on; while :; do date >> beat.txt; sleep 0.01; done & wait", context=context)
        )
        await said.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(cancel())
    size = beat.stat().st_size
    assert isinstance(context.partial_output, RunCommandOutput)
    assert shape(context.partial_output) == ("on\n", "", 137, "KILL")
    time.sleep(0.1)
    assert beat.stat().st_size == size


def test_a_call_that_is_cancelled_before_it_starts_never_runs(commands: Commands) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(commands.start("touch ran; sleep 300"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert commands.run("ls").stdout == ""


def test_a_command_begins_as_if_nothing_had_run_before_it(commands: Commands) -> None:
    """Its limits hold from its first instruction on, and nothing shows how it was made to wait for them."""
    script = 'echo "$_" ${BASH_ENV-none} $LINENO $?; ulimit -H -n; ulimit -S -f; ulimit -c; nice; umask; jobs'
    limits = Limits(open_files=123, file_bytes=1024**2)
    nice = os.getpriority(os.PRIO_PROCESS, 0) + 5
    assert commands.run(script, limits=limits).stdout == f"bash none 1 0\n123\n1024\n0\n{nice}\n0022\n"
    descriptors = "for n in {3..9} {11..99}; do { : <&$n; } 2>/dev/null && echo $n; done; env | grep -c BASH"
    assert commands.run(descriptors).stdout == "0\n"


def test_standard_input_is_empty(commands: Commands) -> None:
    """P52."""
    assert shape(commands.run("cat; python3; read x; echo got:$x")) == ("got:\n", "", 0, None)


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_pagers_and_editors_wait_for_nobody(commands: Commands) -> None:
    """P53."""
    prepare = (
        "git init -q . && git config user.email a@b && git config user.name n && seq 1 5000 > big.txt && git add . && "
        "for i in $(seq 5); do git commit -q --allow-empty -m c$i; done"
    )
    assert commands.run(prepare).exit_code == 0
    output = commands.run("git log --oneline | wc -l; git log; git log -p; git commit --allow-empty; echo $?")
    assert output.stdout.startswith("5\n")
    assert "+5000" in output.stdout
    assert output.stdout.endswith("\n1\n")
    assert "empty commit message" in output.stderr


@pytest.mark.parametrize(
    "command, stdout, exit_code, signal",
    [
        ("echo before; kill -9 $$", "before\n", 137, "KILL"),
        ("bash -c 'kill -SEGV $$'", "", 139, "SEGV"),
        ("exit 7", "", 7, None),
        ("exit 255", "", 255, None),
    ],
)
def test_death_by_signal_is_named(
    commands: Commands, command: str, stdout: str, exit_code: int, signal: str | None
) -> None:
    """P55."""
    output = commands.run(command)
    assert (output.stdout, output.exit_code, output.signal, output.timed_out) == (stdout, exit_code, signal, False)


def test_long_output_keeps_both_ends_and_the_rest_is_in_a_file(commands: Commands) -> None:
    """P58."""
    output = commands.run("echo FIRST; seq 1 200000; echo 'error: LAST' >&2; exit 2")
    assert (output.exit_code, output.stderr, output.truncated) == (2, "error: LAST\n", True)
    assert output.stdout.startswith("FIRST\n1\n2\n")
    assert output.stdout.endswith("\n199999\n200000\n")
    assert output.spill is not None
    whole = (commands.root / output.spill).read_text()
    assert whole == "FIRST\n" + "".join(f"{number}\n" for number in range(1, 200001))
    assert output.omitted_bytes is not None
    head, marker, tail = output.stdout.partition("\n[... ")
    omitted, _, rest = tail.partition(" bytes omitted; the output is in ")
    assert int(omitted) == output.omitted_bytes["stdout"] == len(whole) - len(head) - len(rest.partition(" ...]\n")[2])
    assert rest.startswith(output.spill)
    assert marker


def test_cuts_fall_between_characters(commands: Commands) -> None:
    """P58."""
    output = commands.run('python3 -c \'print("a" + "\\u20ac" * 200000)\'')
    assert "\ufffd" not in output.stdout
    assert output.omitted_bytes is not None
    assert (
        output.omitted_bytes["stdout"]
        + len(output.stdout.partition("\n[")[0].encode())
        + len(output.stdout.partition("...]\n")[2].encode())
        == 600002
    )


def test_bytes_that_are_no_text_survive(commands: Commands) -> None:
    """P59."""
    output = commands.run(r"printf 'ok \360\050 \000 end\n'; printf '\303'; sleep 0.05; printf '\251'")
    assert shape(output) == ("ok \ufffd( \0 end\né", "", 0, None)
    assert output.spill is not None
    assert (commands.root / output.spill).read_bytes() == b"ok \xf0( \0 end\n\xc3\xa9"


def test_progress_bars_and_escape_codes_are_folded_and_the_bytes_kept(commands: Commands) -> None:
    output = commands.run(r"printf '10%%\r50%%\r100%%\n\033[31mred\033[0m \033]0;title\a\r\nab\bc\n'")
    assert output.stdout == "100%\nred \r\nac\n"
    assert output.spill is not None
    assert (commands.root / output.spill).read_bytes().startswith(b"10%\r50%\r100%\n\x1b[31m")


def test_a_vanished_directory_is_explained(commands: Commands) -> None:
    """P61."""
    assert commands.run("mkdir t && cd t && rmdir ../t; pwd").exit_code == 0
    assert commands.run("echo alive").stdout == "alive\n"
    failure = commands.fail("true", "not_found", cwd="t")
    assert str(failure) == "cwd 't' does not exist"
    (commands.root / "file").write_text("")
    assert str(commands.fail("true", "wrong_kind", cwd="file")) == "cwd 'file' is not a directory"
    shutil.rmtree(commands.root)
    assert str(commands.fail("true", "not_found")) == "the workspace no longer exists"


@pytest.mark.parametrize("cwd", ["..", "/", "/etc", "link", "a/../../x", "../workspace-2"])
def test_no_cwd_leads_out(commands: Commands, cwd: str) -> None:
    (commands.root.parent / "workspace-2").mkdir()
    (commands.root / "link").symlink_to("/usr")
    (commands.root / "a").mkdir()
    commands.fail("true", "forbidden", cwd=cwd)


def test_cwd_may_be_relative_absolute_or_a_link_that_stays_inside(commands: Commands) -> None:
    (commands.root / "a/b").mkdir(parents=True)
    (commands.root / "link").symlink_to("a/b")
    for cwd in ("a/b", str(commands.root / "a/b"), "link", "a/../a/b/."):
        output = commands.run("pwd -P; echo $PWD", cwd=cwd)
        assert output.stdout == f"{commands.root}/a/b\n{commands.root}/a/b\n"


def test_the_shell_gets_the_exact_bytes(commands: Commands) -> None:
    """P62."""
    script = "printf '%s' ' != ' | od -c\ncat <<'MY-EOF'\nC:\\\\Users it's $HOME \\`x\\` !\nMY-EOF\n# trailing comment"
    output = commands.run(script)
    assert output.stdout.splitlines() == [
        "0000000       !   =    ",
        "0000004",
        "C:\\\\Users it's $HOME \\`x\\` !",
    ]
    assert (output.stderr, output.exit_code) == ("", 0)


@pytest.mark.parametrize("size", [10, 100 * 1024 - 20, 200_000, 600_000])
def test_scripts_of_any_length_run_alike(commands: Commands, size: int) -> None:
    script = f"cat; echo $0 $# ${{BASH_SOURCE-}}; : {'x' * size}; exit 9"
    output = commands.run(script)
    assert (output.stdout.split()[:2], output.stderr, output.exit_code) == (["bash", "0"], "", 9)
    broken = commands.run(f": {'x' * size}\necho one\nif true; then")
    assert (broken.stdout, broken.exit_code) == ("one\n", 2)
    assert "syntax error" in broken.stderr


def test_the_locale_is_utf8_whatever_the_worker_has(commands: Commands) -> None:
    """P64."""
    (commands.root / "ü.txt").write_text("")
    output = commands.run("python3 -c 'print(\"こんにちは\")'; ls ü* 2>&1; sort --version | head -1")
    assert output.stdout.splitlines()[:2] == ["こんにちは", "ü.txt"]


def test_nothing_of_the_workers_environment_arrives(
    wall: Wall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P65."""
    for name in ("OPENAI_API_KEY", "REDIS_URL", "AWS_SECRET_ACCESS_KEY", "BASH_ENV", "LD_PRELOAD_X", "PS4"):
        monkeypatch.setenv(name, "s3cr3t-value")
    with walled(wall, tmp_path) as commands:
        for _ in range(2):
            output = commands.run(
                "env; cat /proc/$PPID/environ | tr '\\0' '\\n'; cat /proc/self/environ | tr '\\0' '\\n'; "
                "for p in /proc/[0-9]*; do cat $p/environ; done 2>/dev/null | tr '\\0' '\\n' | grep -c NOTHING"
            )
            assert "s3cr3t" not in output.stdout
            values = dict(line.split("=", 1) for line in output.stdout.splitlines() if "=" in line)
            assert values["HOME"] == str(commands.root)
            assert values["LANG"] == "C.UTF-8"
            assert values["PATH"].startswith("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin")


def test_only_the_shell_judges_syntax(commands: Commands) -> None:
    """P70."""
    valid = "awk 'BEGIN{printf \"%s\\n\", \"it'\\''s\"}'; case x in x) echo ok;; esac; cat <<'E'\nb)ody\nE"
    assert shape(commands.run(valid)) == ("it's\nok\nb)ody\n", "", 0, None)
    broken = commands.run("if true; then")
    assert (broken.stdout, broken.exit_code, broken.signal) == ("", 2, None)
    assert "syntax error" in broken.stderr


def test_there_is_no_terminal(commands: Commands) -> None:
    output = commands.run("tty; (: < /dev/tty) 2>/dev/null || echo none; ps -o tty= -p $$ 2>/dev/null")
    assert output.stdout.splitlines()[:2] == ["not a tty", "none"]


def test_a_command_without_end_and_one_with_a_nul_are_refused(commands: Commands) -> None:
    commands.fail("sleep 1", "invalid_call", background=True)
    commands.fail("echo a\0b", "invalid_call")


def test_output_is_shown_while_it_comes(commands: Commands) -> None:
    got: list[tuple[str, str, int]] = []

    async def progress(stream: str, text: str, dropped: int) -> None:
        got.append((stream, text, dropped))

    output = commands.run(
        r"printf 'one \303'; sleep 0.4; printf '\251 \033[1'; sleep 0.4; printf 'mtwo'; echo err >&2", progress=progress
    )
    assert "".join(text for stream, text, _ in got if stream == "stdout") == output.stdout == "one é two"
    assert "".join(text for stream, text, _ in got if stream == "stderr") == "err\n"
    assert [text for stream, text, _ in got if stream == "stdout"] == ["one ", "é ", "two"]


def test_shown_output_is_bounded_and_the_rest_counted(commands: Commands) -> None:
    got: list[tuple[int, int]] = []

    async def progress(_: str, text: str, dropped: int) -> None:
        got.append((len(text), dropped))

    total = 5_000_000
    limits = Limits(progress_bytes=100_000)
    assert commands.run(f"head -c {total} /dev/zero", progress=progress, limits=limits).exit_code == 0
    assert sum(shown for shown, _ in got) <= 100_000
    assert sum(shown + dropped for shown, dropped in got) == total


def test_a_slow_reader_of_progress_holds_nothing_up(commands: Commands) -> None:
    shown = dropped = 0

    async def progress(_: str, text: str, dropped_bytes: int) -> None:
        nonlocal shown, dropped
        shown += len(text)
        dropped += dropped_bytes
        await asyncio.sleep(0.3)

    assert commands.run("head -c 3000000 /dev/zero; sleep 0.3; echo end", progress=progress).exit_code == 0
    assert shown + dropped == 3_000_004
    assert dropped > 0


def test_calls_run_side_by_side(commands: Commands) -> None:
    async def several() -> list[RunCommandOutput]:
        return await asyncio.gather(*(commands.start(f"sleep 0.2; echo {number}") for number in range(20)))

    outputs = asyncio.run(several())
    assert [output.stdout for output in outputs] == [f"{number}\n" for number in range(20)]


def test_children_of_the_worker_are_left_to_it(commands: Commands) -> None:
    """Nobody's SIGCHLD is stolen, and nobody else's child is collected."""

    async def both() -> tuple[int, RunCommandOutput]:
        process = await asyncio.create_subprocess_exec("bash", "-c", "sleep 0.1; exit 5")
        output = await commands.start("exit 6")
        return await process.wait(), output

    other = subprocess.Popen(["true"])
    code, output = asyncio.run(both())
    assert (code, output.exit_code, other.wait()) == (5, 6, 0)


def test_the_deadline_ends_it_too(commands: Commands) -> None:
    context = commands.context(deadline=time.monotonic() + 0.3)
    with pytest.raises(Exception, match="ended after 0") as caught:
        asyncio.run(commands.start("sleep 300", context=context, timeout_s=200))
    assert getattr(caught.value, "code", None) == "timeout"
