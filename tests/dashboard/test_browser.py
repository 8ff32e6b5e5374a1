"""The pages in a real browser: what a person sees and does, and what a hostile output can't do to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, expect

from contracts import keys
from contracts.signing import ApproverKey, new_private_key
from tests.dashboard.conftest import Dashboard, wait_for_running, write_tokens
from tests.dashboard.test_access import STEP, actions
from tests.dashboard.test_api import prepare
from tests.fleet import Agent, Fleet, wait_until

Beside = Callable[..., Any]
PAGES = ["/", "/workers", "/running", "/calls", "/sessions", "/plans", "/failures"]
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


class Watcher:
    """Pages of one browser context, and all that must not happen in them."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        self.complaints: list[str] = []

    def open(self, path: str) -> Page:
        """A new page, once its data is there."""
        page = self.context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._look_at)
        page.on("dialog", self._refuse)
        page.goto(self.url + path)
        return page

    def live(self, path: str) -> Page:
        """A new page that is live."""
        page = self.open(path)
        expect(page.locator("#connection")).to_have_class(re.compile(r"\blive\b"))
        return page

    def _hear(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(said.text)

    def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def _look_at(self, request: Any) -> None:
        if not request.url.startswith(self.url + "/"):
            self.complaints.append(f"asked outside: {request.url}")


@pytest.fixture
def watch(browser: Browser) -> Iterator[Callable[..., Watcher]]:
    """Opens contexts; afterwards none of their pages may have complained or asked outside."""
    opened: list[Watcher] = []

    def make(dashboard: Dashboard, **options: Any) -> Watcher:
        opened.append(Watcher(browser.new_context(**options), dashboard.url))
        return opened[-1]

    yield make
    for each in opened:
        each.context.close()
    assert [each.complaints for each in opened] == [[]] * len(opened)


@pytest.fixture(scope="module")
def staffed(watched: Fleet) -> Iterator[tuple[Dashboard, dict[str, str]]]:
    """A dashboard for people with roles."""
    tokens = write_tokens(watched, otto="operator", anna="approver")
    started = Dashboard(watched, "--anonymous")
    yield started, tokens
    assert started.end() == 0
    (watched.state / "dashboard.tokens").unlink()


@pytest.fixture(scope="module")
def busy(watched: Fleet, beside: Beside) -> str:
    """Something to see on every page, and not much else: a hundred rows more would be the same to axe, and slow. The
    session it is in."""
    watched.redis.xtrim(keys.audit(watched.queue), maxlen=10, approximate=False)
    agent = watched.agent("busy")
    prepare_beside(beside, watched, "busy", mode="plan")
    beside(agent.complete, "plan.propose", summary="Write a file.", steps=[STEP])
    beside(agent.call, "write_file", path="a.txt", content="x")
    beside(agent.call, "read_file", path="missing.txt")
    beside(watched.agent("asking").call, "run_command", command="touch a")
    beside(agent.call, "list_directory", path=".", call_id="look")
    watched.agent("working").push(
        "long", "run_command", {"command": "for i in 1 2 3; do echo line $i; done; sleep 300"}
    )
    watched.push_raw("no job id", None)
    wait_until(lambda: watched.redis.xlen(keys.dead(watched.queue)), "a dead letter")
    return "busy"


def prepare_beside(beside: Beside, fleet: Fleet, session: str, **options: Any) -> None:
    beside(prepare, fleet, session, **options)


def sign_in(page: Page, name: str, token: str) -> None:
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Token").fill(token)
    page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name=name)).to_be_visible()
    expect(page.locator("#connection")).to_have_class(re.compile(r"\blive\b"))


def test_every_page_in_both_themes_passes_axe_and_asks_nobody_else(
    dashboard: Dashboard, busy: str, watch: Callable[..., Watcher]
) -> None:
    deep = [f"/calls/watched/{busy}/look", "/calls/watched/working/long", f"/sessions/watched/{busy}"]
    # The themes differ in colours alone: in the second, the pages that have all of them.
    for scheme, paths in (("light", [*PAGES, *deep]), ("dark", ["/", "/plans", deep[0]])):
        watcher = watch(dashboard, color_scheme=scheme)
        for path in paths:
            page = watcher.live(path)
            expect(page.locator("main h1")).to_have_count(1)
            found = Axe().run(page)
            assert found.violations_count == 0, f"{scheme} {path}\n{found.generate_report()}"
            page.close()


def facts(page: Page) -> dict[str, str]:
    """The names and values in the first list of facts."""
    place = page.locator(".facts").first
    return dict(zip(place.locator("dt").all_inner_texts(), place.locator("dd").all_inner_texts(), strict=True))


def test_each_page_shows_what_the_api_says(
    dashboard: Dashboard, looker: Agent, beside: Beside, watch: Callable[..., Watcher]
) -> None:
    prepare_beside(beside, looker.fleet, looker.session)
    beside(looker.call, "run_command", command="echo out; echo err >&2; exit 3", call_id="c1")
    beside(looker.call, "run_command", command="sudo id", call_id="d1")
    watcher = watch(dashboard)
    said = dashboard.get(f"/api/calls/watched/{looker.session}/c1")
    page = watcher.live(f"/calls/watched/{looker.session}/c1")
    shown = facts(page)
    assert (shown["Call"], shown["Session"], shown["Worker"]) == ("c1", looker.session, said["worker"])
    assert (shown["State"], shown["Level"], shown["Sandbox"]) == ("completed", "PUBLIC", said["sandbox"])
    assert [item.split()[0] for item in page.locator(".timeline li").all_inner_texts()] == [
        "submitted",
        "claimed",
        "replied",
    ]
    fields = page.locator(".fields")
    pairs = dict(zip(fields.locator("dt").all_inner_texts(), fields.locator("dd").all_inner_texts(), strict=True))
    assert (pairs["stdout"], pairs["stderr"], pairs["exit_code"]) == ("out\n", "err\n", "3")
    expect(page.locator(".decision")).to_contain_text("Allowed")
    page = watcher.live(f"/calls/watched/{looker.session}/d1")
    denial = dashboard.get(f"/api/calls/watched/{looker.session}/d1")["decision"]
    expect(page.locator(".decision")).to_have_text(
        f"Denied by {denial['policy']} / {denial['rule']}: {denial['reason']}"
    )
    page = watcher.live(f"/sessions/watched/{looker.session}")
    shown = facts(page)
    assert (shown["Taint"], shown["Workspace"], shown["Queue"]) == ("PUBLIC", looker.session, "watched")
    expect(page.locator("tbody tr")).to_have_count(2)
    page = watcher.live("/workers")
    (worker,) = dashboard.get("/api/workers")["workers"]
    expect(page.locator("tbody tr")).to_contain_text(worker["worker"])
    expect(page.locator("tbody tr")).to_contain_text(worker["sandbox"])


def test_no_page_is_wider_than_a_phone(dashboard: Dashboard, busy: str, watch: Callable[..., Watcher]) -> None:
    watcher = watch(dashboard, **PHONE)
    for path in [*PAGES, f"/calls/watched/{busy}/look", f"/sessions/watched/{busy}"]:
        page = watcher.live(path)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, path
        page.close()
    page = watcher.live("/running")
    label = page.locator("td[data-label='What']").first.evaluate("node => getComputedStyle(node, '::before').content")
    assert label == '"What"'
    assert Axe().run(page).violations_count == 0


def test_pages_follow_real_load_without_a_reload(
    dashboard: Dashboard, looker: Agent, beside: Beside, watch: Callable[..., Watcher]
) -> None:
    watcher = watch(dashboard)
    overview, calls, running = (watcher.live(path) for path in ("/", "/calls", "/running"))
    overview.evaluate("window.same = true")
    for number in range(200):
        looker.push(f"c{number}", "list_directory", {"path": "."})
    looker.push("slow", "run_command", {"command": "for i in $(seq 300); do echo step $i; sleep 0.1; done"})
    row = running.locator("tr", has_text=looker.session)
    expect(row).to_contain_text("running")
    expect(row.locator("td[data-label='Last output']")).to_contain_text("step")
    throughput = overview.locator(".tile", has_text="Throughput").locator(".value")
    expect(throughput).not_to_have_text(re.compile(r"^(≈ )?0\.00/s$"))
    expect(overview.locator(".tile", has_text="Slots").locator(".value")).not_to_have_text(re.compile("^0 of"))
    expect(calls.locator("tbody tr")).to_have_count(100)
    assert overview.evaluate("window.same") is True
    assert overview.locator("canvas").count() == 4
    page = watcher.live(f"/calls/watched/{looker.session}/slow")
    output = page.get_by_role("region", name="Live output")
    expect(output).to_contain_text("step 3")
    before = output.inner_text()
    expect(output).not_to_have_text(before)
    beside(looker.with_client, lambda client: client.cancel(looker.session, "slow"))
    expect(page.locator("h1")).to_contain_text("failed")
    expect(row).to_have_count(0)
    expect(page.locator("#output ~ .payload, #output ~ div .payload").first).to_contain_text("step 3")


def test_an_operator_signs_in_and_cancels(
    staffed: tuple[Dashboard, dict[str, str]], looker: Agent, watch: Callable[..., Watcher]
) -> None:
    dashboard, tokens = staffed
    looker.push("slow", "run_command", {"command": "sleep 300"})
    wait_for_running(looker, "slow")
    page = watch(dashboard).live("/running")
    expect(page.get_by_role("button", name="Cancel call slow")).to_have_count(0)
    sign_in(page, "otto", tokens["otto"])
    page.locator("tr", has_text=looker.session).get_by_role("button", name="Cancel call slow").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("call slow")
    dialog.get_by_label("Reason").fill("it runs <b>wild</b>")
    dialog.get_by_role("button", name="Cancel the call").click()
    expect(page.locator("#said")).to_contain_text("Asked for the end of call slow")
    (reply,) = looker.fleet.wait_replies(looker.session, 1)
    assert reply["error"]["code"] == "cancelled"
    (action,) = actions(looker.fleet, looker.session)
    assert (action["actor"], action["reason"]) == ("otto", "it runs <b>wild</b>")
    expect(page.locator("tr", has_text=looker.session)).to_have_count(0)
    page.goto(f"{dashboard.url}/calls/watched/{looker.session}/slow")
    expect(page.locator("main")).to_contain_text("otto · cancel · call slow · it runs <b>wild</b>")


@pytest.mark.parametrize("verdict", ["Approve", "Reject"])
def test_an_approver_judges_a_plan(
    staffed: tuple[Dashboard, dict[str, str]],
    looker: Agent,
    beside: Beside,
    watch: Callable[..., Watcher],
    verdict: str,
) -> None:
    dashboard, tokens = staffed
    prepare_beside(beside, looker.fleet, looker.session, mode="plan")
    beside(looker.complete, "plan.propose", summary="Write a file.", steps=[STEP])
    page = watch(dashboard).live("/plans")
    sign_in(page, "anna", tokens["anna"])
    card = page.locator("article", has_text=looker.session)
    expect(card).to_contain_text("Would allow write_file on")
    expect(card).to_contain_text("a.txt")
    card.get_by_role("button", name=verdict).click()
    dialog = page.get_by_role("dialog")
    if verdict == "Reject":
        dialog.get_by_role("button", name=verdict).click()
        expect(dialog).to_be_visible()  # the browser asks for the reason first
    dialog.get_by_label("Reason").fill("looked at it")
    dialog.get_by_role("button", name=verdict).click()
    expect(page.locator("#said")).to_contain_text(f"{verdict.lower()}")
    card = page.locator("article", has_text=looker.session)
    expect(card).to_contain_text("by anna")
    expect(card.get_by_role("button", name=verdict)).to_have_count(0)
    done = beside(looker.call, "write_file", path="a.txt", content="x")
    assert (done.error is None) == (verdict == "Approve")


def test_a_yes_that_nobody_signed_is_shown_as_one_that_does_not_count(
    watched: Fleet,
    looker: Agent,
    beside: Beside,
    make_dashboard: Callable[..., Dashboard],
    watch: Callable[..., Watcher],
) -> None:
    (watched.state / "approvers").write_text(f"anna {ApproverKey(new_private_key()).public}\n")
    prepare_beside(beside, watched, looker.session, mode="plan")
    beside(looker.complete, "plan.propose", summary="Write a file.", steps=[STEP])
    beside(watched.run, "plan", "approve", "--session", looker.session, "--approver", "mallory")
    strict = make_dashboard(watched, "--anonymous", TOOLREEF_APPROVER_KEYS=str(watched.state / "approvers"))
    for path in ("/plans", f"/sessions/watched/{looker.session}"):
        card = watch(strict).live(path).locator("article", has_text=looker.session)
        expect(card).to_contain_text("Approved by mallory")
        expect(card).to_contain_text("Does not count: it is not signed by an approver's key.")
        expect(card.get_by_role("heading")).to_contain_text("awaiting")


def test_an_approver_answers_a_call_that_asks(
    staffed: tuple[Dashboard, dict[str, str]], looker: Agent, beside: Beside, watch: Callable[..., Watcher]
) -> None:
    dashboard, tokens = staffed
    beside(looker.call, "run_command", command="touch a")
    page = watch(dashboard).live("/plans")
    sign_in(page, "anna", tokens["anna"])
    card = page.locator("article", has_text=looker.session)
    expect(card).to_contain_text("touching needs a yes")
    card.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.locator("#said")).to_contain_text("is approved")
    expect(page.locator("article", has_text=looker.session)).to_have_count(0)
    assert beside(looker.call, "run_command", command="touch a").error is None


def test_a_wrong_token_is_told_and_forgotten(
    staffed: tuple[Dashboard, dict[str, str]], watch: Callable[..., Watcher]
) -> None:
    watcher = watch(staffed[0])
    page = watcher.live("/")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Token").fill("nonsense")
    page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("That token is not known here.")
    assert page.evaluate("localStorage.length") == 0
    # The browser itself reports the refused request.
    assert all("401" in complaint for complaint in watcher.complaints)
    watcher.complaints.clear()


def test_what_was_searched_for_is_in_the_address(
    dashboard: Dashboard, looker: Agent, beside: Beside, watch: Callable[..., Watcher]
) -> None:
    beside(looker.call, "run_command", command="sudo cat /etc/shadow", call_id="bad")
    beside(looker.call, "list_directory", path=".", call_id="good")
    watcher = watch(dashboard)
    page = watcher.live("/")
    page.keyboard.press("/")
    page.keyboard.type(looker.session)
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Status or error code").fill("denied")
    page.get_by_label("Tool").select_option("run_command")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("sudo cat /etc/shadow")
    address = page.url
    assert f"text={looker.session}" in address
    assert "status=denied" in address
    other = watch(dashboard).open(address.removeprefix(dashboard.url))
    expect(other.locator("tbody tr")).to_have_count(1)
    other.locator("tbody a").first.click()
    expect(other.locator(".decision")).to_contain_text("command_denylist")


def test_the_theme_follows_the_system_until_one_is_chosen(dashboard: Dashboard, watch: Callable[..., Watcher]) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = watch(dashboard, color_scheme="dark").live("/")
    light = watch(dashboard, color_scheme="light").live("/")
    dark_ground, light_ground = dark.evaluate(ground), light.evaluate(ground)
    assert dark_ground != light_ground
    light.get_by_role("button", name="Dark").click()
    assert light.evaluate(ground) == dark_ground
    light.reload()
    expect(light.locator("#connection")).to_have_class(re.compile("live"))
    assert light.evaluate(ground) == dark_ground
    light.keyboard.press("t")
    assert light.evaluate(ground) == light_ground


def test_everything_works_by_keyboard(
    staffed: tuple[Dashboard, dict[str, str]], looker: Agent, watch: Callable[..., Watcher]
) -> None:
    dashboard, tokens = staffed
    looker.push("slow", "run_command", {"command": "sleep 300"})
    wait_for_running(looker, "slow")
    page = watch(dashboard).live("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("running calls")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    sign_in(page, "otto", tokens["otto"])
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/running")
    expect(page.locator("tbody tr").first).to_be_visible()
    for _ in range(10):
        page.keyboard.press("j")
        if looker.session in page.evaluate("document.activeElement.closest('tr').textContent"):
            break
    focused = page.evaluate_handle("document.activeElement")
    page.wait_for_timeout(1500)
    assert page.evaluate("node => document.activeElement === node", focused), "an update took the focus away"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/calls/watched/{looker.session}/slow*")
    page.get_by_role("button", name="Cancel").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("by keys alone")
    page.keyboard.press("Enter")
    (reply,) = looker.fleet.wait_replies(looker.session, 1)
    assert reply["error"]["code"] == "cancelled"
    assert actions(looker.fleet, looker.session)[0]["reason"] == "by keys alone"


HOSTILE = (
    "<img src=x onerror='window.pwned=1'><script>window.pwned=2</script></pre></td></tr><tr><td>forged</td></tr>"
    "\x1b[31;1mred\x1b[0m \x1b]0;title\x07 \u202eesrever\u2066 \u200bhidden\u00ad \x9b31m "
    "javascript:window.pwned=3 &lt;b&gt; ${window.pwned=4} {{7*7}} \x7f\n"
)


def test_a_hostile_output_is_text_and_nothing_else(
    dashboard: Dashboard, looker: Agent, beside: Beside, watch: Callable[..., Watcher]
) -> None:
    fleet, q = looker.fleet, looker.fleet.queue
    prepare_beside(beside, fleet, looker.session, mode="plan")
    plan = {"description": HOSTILE, "paths": [HOSTILE], "tools": [HOSTILE]}
    beside(looker.complete, "plan.propose", summary=HOSTILE, steps=[plan])
    prepare_beside(beside, fleet, looker.session, mode="normal")
    beside(looker.complete, "write_file", path="a.txt", content=HOSTILE)
    beside(looker.call, "read_file", path="a.txt", call_id="look")
    beside(looker.call, "run_command", command=f"cat a.txt; printf '\\0' # {HOSTILE[:110]}", call_id="say")
    looker.push("slow", "run_command", {"command": "cat a.txt; printf '\\0'; sleep 300"})
    wait_for_running(looker, "slow")
    fleet.redis.xadd(keys.dead(q), {"id": HOSTILE, "why": HOSTILE})
    fleet.redis.hset(keys.session(q, looker.session), mapping={"mode": HOSTILE, "taint:INTERNAL": f"1 {HOSTILE}"})
    watcher = watch(dashboard)
    base = f"/calls/watched/{looker.session}"
    for path in (f"{base}/look", f"{base}/say", f"{base}/slow", "/running", "/plans", "/failures", "/calls",
                 "/sessions", f"/sessions/watched/{looker.session}"):  # fmt: skip
        page = watcher.live(path)
        expect(page.locator("main")).to_contain_text("window.pwned=1" if path != "/calls" else "a.txt")
        text = page.locator("main").inner_text()
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e\u2066\u00ad]", text), path
        assert page.evaluate("window.pwned") is None
        assert page.locator("main img, main script, main iframe, main style, main [style*=color]").count() == 0
        assert page.locator("td", has_text=re.compile("^forged$")).count() == 0
        assert page.locator("a[href^='javascript:']").count() == 0
        page.close()
    page = watcher.live(f"{base}/look")
    shown = page.locator("pre", has_text="pwned").first.inner_text()
    assert "␛[31;1mred␛[0m" in shown
    assert "⟨U+202E⟩esrever" in shown
    assert "⟨U+200B⟩hidden" in shown
    beside(looker.with_client, lambda client: client.cancel(looker.session, "slow"))
    fleet.wait_replies(looker.session, 5)
    fleet.redis.hset(keys.session(q, looker.session), "mode", "normal")


def test_a_page_cannot_be_made_to_run_what_it_is_given(dashboard: Dashboard, watch: Callable[..., Watcher]) -> None:
    watcher = watch(dashboard)
    page = watcher.live("/")
    tries = {
        "document.body.innerHTML = '<b>x</b>'": "TrustedHTML",
        "document.createElement('script').textContent = 'window.pwned=1'": "TrustedScript",
    }
    for attempt, word in tries.items():
        said = page.evaluate(
            f"(() => {{ try {{ {attempt}; return ''; }} catch (error) {{ return String(error); }} }})()"
        )
        assert word in said
    assert page.evaluate("window.pwned") is None
    watcher.complaints.clear()


def test_a_hidden_tab_reads_nothing(quiet: Fleet, watch: Callable[..., Watcher]) -> None:
    dashboard = Dashboard(quiet)

    def reads() -> int:
        return int(quiet.redis.info("commandstats").get("cmdstat_zcard", {"calls": 0})["calls"])

    def hide(page: Page, hidden: bool) -> None:
        page.evaluate(
            "hidden => { Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});"
            " document.dispatchEvent(new Event('visibilitychange')); }",
            hidden,
        )

    try:
        page = watch(dashboard).live("/")
        hide(page, True)
        expect(page.locator("#connection")).to_contain_text("Paused")
        page.wait_for_timeout(500)
        before = reads()
        page.wait_for_timeout(2500)
        assert reads() == before
        hide(page, False)
        expect(page.locator("#connection")).to_have_class(re.compile("live"))
        wait_until(lambda: reads() > before, "the reads to go on")
        page.close()
    finally:
        assert dashboard.end() == 0


def test_a_dashboard_that_restarts_is_found_again(quiet: Fleet, watch: Callable[..., Watcher]) -> None:
    first = Dashboard(quiet)
    port = first.url.rsplit(":", 1)[1]
    watcher = watch(first)
    page = watcher.live("/workers")
    assert first.end() == 0
    expect(page.locator("#connection")).to_contain_text("does not answer")
    second = Dashboard(quiet, "--port", port)
    try:
        expect(page.locator("#connection")).to_have_class(re.compile("live"))
    finally:
        page.close()
        assert second.end() == 0
    watcher.complaints[:] = [each for each in watcher.complaints if "ERR_CONNECTION_REFUSED" not in each]
