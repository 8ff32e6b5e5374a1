"""What the scripts do with many calls at once and with records that are not as they should be, through the broker."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from contracts import keys
from contracts.codec import encode, encode_call
from contracts.connection import connect
from contracts.replies import Completed
from tests.conftest import assert_every_key_has_a_life
from tests.fleet import Server, run_async
from worker.broker import MAX_READ_ATTEMPTS, Broker
from worker.claims import Claimed, Ending
from worker.settings import Settings


@dataclass
class Desk:
    """A queue, and a worker's broker of it that claims and ends calls without running any."""

    url: str
    state: Path
    queue: str
    redis: Any

    def push(self, session: str, call: str, tool: str = "read_file", score: float = 0) -> str:
        """Payload and queue entry."""
        job_id = keys.job_id(self.queue, session, call)
        self.redis.set(f"arq:job:{job_id}", encode_call(tool, {"path": "a"}, enqueued_ms=1), px=3_600_000)
        self.redis.zadd(keys.queue(self.queue), {job_id: score})
        return job_id

    def claim(self, slots: int = 10) -> list[Claimed]:
        """One claim."""
        return self._run("claim", self.queue, slots, b"", uuid.uuid4().hex).calls  # type: ignore[no-any-return]

    def claim_again(self, job_id: str) -> Claimed:
        """The claim that follows when the call's lease has ended."""
        self.redis.zadd(keys.leases(self.queue), {job_id: 1}, xx=True)
        (claim,) = self.claim()
        return claim

    def finish(self, claims: list[Claimed], plan: str = "") -> list[str]:
        """One batch. A word a claim."""
        return self._run("finish", self.queue, [self._ending(claim, plan) for claim in claims])[1]  # type: ignore[no-any-return]

    def release(self, claims: list[Claimed]) -> int:
        """Gives claims back."""
        return self._run("release", self.queue, claims)  # type: ignore[no-any-return]

    def bring_forward(self, session: str, call: str) -> str:
        """What a worker does when it hears of a wish to cancel."""
        return self._run("bring_forward", self.queue, session, call)  # type: ignore[no-any-return]

    def replied(self, session: str) -> list[str]:
        """The calls that have replies, in their order."""
        entries = self.redis.xrange(keys.replies(self.queue, session))
        return [fields[b"reply"].split(b'"call":"')[1].split(b'"')[0].decode() for _, fields in entries]

    def left(self) -> list[str]:
        """What is there only while calls are on their way."""
        tag = f"{{{self.queue}}}"
        patterns = (f"arq:*{tag}*", f"reef:{tag}:running:*", f"reef:{tag}:waiting:*")
        found = {key.decode() for pattern in patterns for key in self.redis.scan_iter(pattern)}
        found |= {"leases"} if self.redis.zcard(keys.leases(self.queue)) else set()
        return sorted(found | ({"parked"} if self.redis.exists(keys.parked(self.queue)) else set()))

    def _ending(self, claim: Claimed, plan: str) -> Ending:
        reply = encode(Completed(session=claim.job.session, call=claim.job.call, tool="read_file"))
        return Ending(
            id=claim.id, queue=self.queue, token=claim.token, reply=reply, digest="d", level="PUBLIC", plan=plan
        )

    def _run(self, name: str, *words: Any) -> Any:
        async def act() -> Any:
            settings = Settings(state=self.state, workspaces=self.state, max_session_calls=5000)
            broker = Broker(connect(self.url), connect(self.url), settings, "w")
            try:
                return await getattr(broker, name)(*words)
            finally:
                await broker.close()

        return run_async(act)


@pytest.fixture
def desk(server: Server, tmp_path: Path) -> Iterator[Desk]:
    """A queue of its own. Afterwards every key must have a life, and nothing of a call may be left."""
    with contextlib.closing(redis.Redis.from_url(server.url)) as client:
        made = Desk(server.url, tmp_path, f"q-{uuid.uuid4().hex[:10]}", client)
        yield made
        assert made.left() == []
        assert_every_key_has_a_life(client, made.queue)


def words(claims: list[Claimed]) -> list[tuple[str, str, int]]:
    return [(claim.job.call, claim.word, claim.attempt) for claim in claims]


def test_the_same_ending_twice_in_a_batch_is_one(desk: Desk) -> None:
    for call in ("a", "b"):
        desk.push("s", call)
    a, b = desk.claim()
    assert desk.finish([a, b, a]) == ["done", "done", "stale"]
    assert desk.finish([a, b]) == ["stale", "stale"]
    assert desk.replied("s") == ["a", "b"]


def test_calls_of_one_claim_have_one_token_and_later_claims_a_higher_one(desk: Desk) -> None:
    for number in range(3):
        desk.push(f"s{number}", "c")
    first, second = desk.claim(2), desk.claim(1)
    assert first[0].token == first[1].token < second[0].token
    again = desk.claim_again(first[0].id)
    assert again.token > second[0].token
    assert desk.finish([*first, *second, again]) == ["stale", "done", "done", "done"]


def test_thousands_of_calls_end_in_one_batch(desk: Desk) -> None:
    for number in range(1300):
        desk.push(f"s{number % 700}", f"c{number}", score=number)
    claims = [*desk.claim(1000), *desk.claim(1000)]
    assert len(claims) == 1300
    assert desk.finish(claims) == ["done"] * 1300
    assert [desk.replied(f"s{number}") for number in (0, 699)] == [["c0", "c700"], ["c699"]]


def test_calls_of_a_session_that_come_together_are_claimed_and_granted_in_their_order(desk: Desk) -> None:
    reads, others = [f"r{number:02}" for number in range(20)], [f"x{number}" for number in range(3)]
    for number, call in enumerate(reads):
        desk.push("s", call, score=number)
    desk.push("s", "effect", "write_file", score=20)
    for number, call in enumerate(others):
        desk.push("s", call, score=30 + number)
    desk.push("other", "c", score=25)
    claims = desk.claim(50)
    assert [claim.job.call for claim in claims] == [*reads[:16], "c"]
    assert desk.redis.hget(keys.parked(desk.queue), "calls") == b"8"
    assert desk.finish(claims[:3]) == ["done"] * 3
    granted = desk.claim(50)
    assert words(granted) == [(call, "run", 1) for call in reads[16:19]]
    desk.finish([*claims[3:], *granted])
    (last,) = desk.claim(50)
    assert last.job.call == "r19"
    desk.finish([last])
    (effect,) = desk.claim(50)
    assert words([effect]) == [("effect", "run", 1)]
    desk.finish([effect])
    final = desk.claim(50)
    assert [claim.job.call for claim in final] == others
    desk.finish(final)
    assert desk.replied("s") == [*reads, "effect", *others]


def test_a_call_twice_in_the_queues_is_claimed_once(desk: Desk) -> None:
    for call in ("a", "b"):
        job_id = desk.push("s", call)
        desk.redis.zadd(keys.batch(desk.queue), {job_id: 0})
    claims = desk.claim()
    assert words(claims) == [("a", "run", 1), ("b", "run", 1)]
    assert desk.claim() == []
    desk.finish(claims)


def test_a_read_runs_so_often_and_an_effect_once(desk: Desk) -> None:
    read, effect = desk.push("s", "r"), desk.push("t", "e", "write_file")
    claims = {claim.id: claim for claim in desk.claim()}
    for attempt in range(2, MAX_READ_ATTEMPTS + 1):
        claims[read] = desk.claim_again(read)
        assert words([claims[read]]) == [("r", "run", attempt)]
    claims[read], claims[effect] = desk.claim_again(read), desk.claim_again(effect)
    assert words(list(claims.values())) == [("r", "interrupted", MAX_READ_ATTEMPTS + 1), ("e", "interrupted", 2)]
    assert desk.finish(list(claims.values())) == ["done", "done"]


def test_what_is_given_back_counts_as_never_claimed(desk: Desk) -> None:
    effect = desk.push("s", "e", "write_file")
    assert desk.release(desk.claim()) == 1
    (claim,) = desk.claim()
    assert words([claim]) == [("e", "run", 1)]
    lapsed = desk.claim_again(effect)
    assert words([lapsed]) == [("e", "interrupted", 2)]
    assert desk.release([claim, lapsed]) == 1
    (last,) = desk.claim()
    assert words([last]) == [("e", "interrupted", 2)], "what was given back was the second claim, not the first"
    desk.finish([last])


@pytest.mark.parametrize("tool", ["read_file", "write_file"])
def test_a_call_whose_record_is_lost_is_not_run_again(desk: Desk, tool: str) -> None:
    job_id = desk.push("s", "c", tool)
    desk.claim()
    desk.redis.delete(keys.running(desk.queue, "s"))
    claim = desk.claim_again(job_id)
    assert claim.word == "interrupted"
    assert desk.finish([claim]) == ["done"]


def test_what_redis_refuses_of_one_call_costs_no_other_its_ending(desk: Desk) -> None:
    for session in ("a", "b", "c"):
        desk.push(session, "first", "write_file", score=1)
        desk.push(session, "then", "write_file", score=2)
    claims = desk.claim()
    desk.redis.set(keys.replies(desk.queue, "b"), "a string, and no stream", px=60_000)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        desk.finish(claims)
    assert [desk.replied(session) for session in ("a", "c")] == [["first"], ["first"]]
    assert desk.finish([claims[0], claims[2]]) == ["stale", "stale"]
    desk.redis.delete(keys.replies(desk.queue, "b"))
    then = desk.claim()
    assert [claim.job.session for claim in then] == ["a", "c"]
    lapsed = desk.claim_again(claims[1].id)
    assert (lapsed.word, lapsed.attempt) == ("interrupted", 2)
    assert desk.finish([*then, lapsed]) == ["done"] * 3
    desk.finish(desk.claim())
    assert [desk.replied(session) for session in ("a", "b", "c")] == [["first", "then"]] * 3


def test_a_reply_that_is_out_is_the_only_one_whatever_comes_after_it(desk: Desk) -> None:
    desk.push("s", "c", "write_file")
    (claim,) = desk.claim()
    desk.redis.set(keys.plan(desk.queue, "s"), "a string, and no hash", px=60_000)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        desk.finish([claim], plan="ab 1 x y")
    assert desk.finish([claim]) == ["stale"]
    assert desk.claim() == []
    assert desk.replied("s") == ["c"]


def test_an_ended_call_that_is_sent_again_and_cancelled_keeps_its_one_reply(desk: Desk) -> None:
    desk.push("s", "c")
    desk.finish(desk.claim())
    desk.push("s", "c")
    desk.redis.set(keys.cancel(desk.queue, "s", "c"), 1, px=60_000)
    assert desk.bring_forward("s", "c") == "unknown"
    assert desk.claim() == []
    assert desk.replied("s") == ["c"]


def test_bytes_that_wait_are_those_that_came_whatever_becomes_of_the_payload(desk: Desk) -> None:
    desk.push("s", "first", "write_file", score=1)
    waits = desk.push("s", "waits", "write_file", score=2)
    (first,) = desk.claim()
    own, all_ = keys.running(desk.queue, "s"), keys.parked(desk.queue)
    size = desk.redis.strlen(f"arq:job:{waits}")
    assert (desk.redis.hmget(own, "#w", "#b"), desk.redis.hmget(all_, "calls", "bytes")) == (
        [b"1", b"%d" % size],
        [b"1", b"%d" % size],
    )
    desk.redis.set(f"arq:job:{waits}", "x" * 5000, px=60_000)
    desk.finish([first])
    assert desk.redis.exists(all_) == 0
    desk.finish(desk.claim())


def test_only_the_latest_plans_are_listed(desk: Desk) -> None:
    listed = keys.plans(desk.queue)
    desk.redis.zadd(listed, {f"old{number}": number for number in range(1000)})
    desk.push("s", "c", "plan.propose")
    desk.finish(desk.claim(), plan="ab 1 x y")
    assert desk.redis.zcard(listed) == 1000
    assert desk.redis.zrange(listed, 0, 0) + desk.redis.zrange(listed, -1, -1) == [b"old1", b"s"]
