"""Every attack on every wall that this host offers, and the page that says what came of it."""

from __future__ import annotations

import pytest

from tests.attacks.campaign import ATTACKS, WORDS_OF_VICTIM
from tests.attacks.table import COLUMNS, IN_A_CONTAINER, PAGE, Results, attack, cell, read
from worker import landlock
from worker.sandbox import SandboxUnavailable

LANDLOCK_LETS_THROUGH = {"chmod", "utime", "stat"}
LET_THROUGH = {
    "bwrap+seccomp": set[str](),
    "landlock+seccomp": LANDLOCK_LETS_THROUGH,
    IN_A_CONTAINER: LANDLOCK_LETS_THROUGH,
}

_results: Results = {}


def results_of(column: str) -> dict[str, str]:
    """Attacked once, for all tests."""
    if column not in _results:
        try:
            _results[column] = attack(column)
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        except FileNotFoundError as error:
            pytest.skip(str(error))
    return _results[column]


@pytest.mark.parametrize("column", LET_THROUGH)
def test_the_wall_stops_what_it_promises(column: str) -> None:
    results = results_of(column)
    excused = LET_THROUGH[column]
    if landlock.abi() < landlock.SIGNALS_ABI and column != "bwrap+seccomp":
        excused = excused | {"signal_worker"}
    assert {name for name, result in results.items() if result == "REACHED"} - excused == set()
    assert results["tier"] == column.split(" ")[0]
    heard = {WORDS_OF_VICTIM[name] for name in excused if name in WORDS_OF_VICTIM}
    assert set(results["said"].split()) <= heard


def test_the_attacks_do_reach_where_there_is_no_wall() -> None:
    """Else they would prove nothing."""
    results = results_of("none")
    stopped = {attack.name for attack in ATTACKS if results[attack.name] != "REACHED"}
    always = {"inherited_environment", "inherited_descriptors", "daemon"}
    by_landlock_or_by_an_ordinary_user = {
        "signal_worker", "gain_privileges", "ptrace", "read_memory", "read_memory_by_call",
        "mount", "set_kernel", "bpf", "page_faults", "io_uring", "keyring", "user_namespace", "user_namespace_by_clone",
        "inject_typing", "shared_memory", "read_environment",
    }  # fmt: skip
    assert always <= stopped <= always | by_landlock_or_by_an_ordinary_user
    assert {"tcp", "udp", "unix", "inside", "abstract", "pair"} <= set(results["said"].split())


@pytest.mark.parametrize("column", COLUMNS)
def test_the_page_says_what_the_attacks_found(column: str) -> None:
    if column == "none":
        pytest.skip("what an ordinary user may do without a wall differs from host to host")
    results = results_of(column)
    page = read(PAGE.read_text())
    assert column in page, "run `make attacks`"
    found = {
        attack.title: cell(results[attack.name])
        for attack in ATTACKS
        if not attack.needs_signals_abi or landlock.abi() >= landlock.SIGNALS_ABI
    }
    written = {title: value for title, value in page[column].items() if title in found}
    assert written == found, "run `make attacks`"
