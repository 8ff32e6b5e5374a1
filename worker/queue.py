"""FleetWorker: arq's worker with a bell instead of a poll, leases that are renewed, and endings that are fenced.

One turn publishes what has finished and claims what is due. Between turns an idle worker sleeps on the bell.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import signal
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from arq.worker import Worker

from contracts import keys
from contracts.tasks import end_all
from worker.backoff import Backoff
from worker.broker import BELL_TIMEOUT_S, UNREACHABLE, Broker
from worker.cancels import Cancels
from worker.claims import Claimed, Ending, Turn, without
from worker.executor import Running, StopReason
from worker.heartbeats import Heartbeats
from worker.metrics import Metrics
from worker.publishing import Publisher
from worker.renewals import Renewals
from worker.server_clock import ServerClock

log = logging.getLogger("toolreef")

Execute = Callable[[Running], Coroutine[Any, Any, Ending]]

LULL_S, SELDOM = 0.002, 3
"""Calls come seldom where so many in a row came alone, each this long after the worker began to wait for it."""


class FleetWorker(Worker):
    """Serves one or several queues. `execute` carries out one claimed call and must answer whatever happens to it."""

    def __init__(
        self,
        functions: Sequence[Any],
        *,
        queues: Sequence[str],
        broker: Broker,
        execute: Execute,
        concurrency: int,
        lease_s: float,
        drain_s: float,
        metrics: Metrics,
        describe: dict[str, Any],
        **arq: Any,
    ) -> None:
        super().__init__(functions, queue_name=keys.queue(queues[0]), max_jobs=concurrency, **arq)
        self.queues = list(queues)
        self.broker = broker
        self.metrics = metrics
        self._execute = execute
        self._lease_s, self._drain_s = lease_s, drain_s
        # By token too: a call whose lease has ended can come back while its old task is being stopped.
        self._running: dict[tuple[str, int], Running] = {}
        self._newest: dict[str, Running] = {}
        self._publisher = Publisher(broker, metrics)
        self._returns: list[Claimed] = []
        self._unsure: dict[str, list[str]] = {}
        self._tickets = map(f"{uuid.uuid4().hex}-{{}}".format, itertools.count())
        # On a cluster one queue's server may be away while the others serve on: failures so far, and who looks for it.
        self._tries: dict[str, Backoff] = {}
        self._away: dict[str, asyncio.Task[None]] = {}
        self._more = set(queues)
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._wake, self._room, self._heard = asyncio.Event(), asyncio.Event(), asyncio.Event()
        # Slots kept for claims under way, whether one of these waits behind the bell, and whether a turn is under way.
        self._reserved, self._ahead, self._in_turn = 0, False, False
        # Calls ever taken, how many of these when a bell was last heard, and how many came alone in a row.
        self._taken, self._taken_before, self._alone = 0, 0, 0
        self._clock = ServerClock()
        self._heartbeats = Heartbeats(describe, concurrency, self._running, metrics)
        self._renewals = Renewals(broker, self.queues, self._running, lease_s, self._heartbeats.next)
        self._draining = False
        self._stopped = asyncio.Event()
        self._given_up = False
        self._next_queue = 0
        self._backoff = Backoff(metrics)
        stop = functools.partial(self._stop_call, reason="cancelled")
        self._cancels = Cancels(broker, self.queues, stop, self._backoff)

    async def main(self) -> None:
        """Runs until a signal has drained the worker. A lost Redis never ends it."""
        self.ctx["redis"] = self._pool
        if self.on_startup:
            await self.on_startup(self.ctx)
        listen = self._listen if len(self.queues) > 1 else functools.partial(self._listen_ahead, self.queues[0])
        watches = (listen, self._renewals.renew, self._renewals.watch, self._cancels.hear)
        watchers = [asyncio.create_task(each()) for each in watches]
        self._wake.set()
        try:
            while not self._given_up and not (self._draining and not self._busy()):
                await self._wake.wait()
                self._wake.clear()
                self._in_turn = True
                await self._turn()
                self._in_turn = False
        finally:
            await end_all([*watchers, *self._away.values()])
            self._stopped.set()

    async def close(self) -> None:
        """Leaves the heartbeats, rings for the others, closes the connections."""
        with contextlib.suppress(*UNREACHABLE):
            async with asyncio.timeout(2):
                for queue in self.queues:
                    await self._settle_lost_claims(queue)
                    await self.broker.forget(queue)
                    await self.broker.ring(queue)
        if self.on_shutdown:
            await self.on_shutdown(self.ctx)
        await self.broker.close()
        self._pool = None

    def handle_sig(self, signum: signal.Signals) -> None:
        """SIGTERM, SIGINT: drain. A second signal stops the running calls at once."""
        if self._draining:
            self._stop_all()
            return
        log.info("draining on %s, %d calls running", signal.Signals(signum).name, len(self._running))
        self._draining = True
        self._heartbeats.drain()
        self.allow_pick_jobs = False
        self.loop.create_task(self._drain())
        self._wake.set()

    handle_sig_wait_for_completion = handle_sig

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                if self._ahead:
                    with contextlib.suppress(*UNREACHABLE):
                        await self.broker.wake(self.queues[0])
                await self._stopped.wait()
        self._stop_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._lease_s):
                await self._stopped.wait()
        # Redis stays away: whoever claims after the leases' end answers in our place.
        self._given_up = True
        self._wake.set()

    def _busy(self) -> bool:
        return bool(self._running or self._publisher or self._returns or self._ahead)

    def _free(self) -> int:
        return self.max_jobs - len(self._running) - self._reserved

    def _stop_all(self) -> None:
        for each in list(self._running.values()):
            each.stop("interrupted")

    def _stop_call(self, job_id: str, reason: StopReason) -> None:
        """Stops whatever runs under the id."""
        if found := self._newest.get(job_id):
            found.stop(reason)

    async def _turn(self) -> None:
        """Serves each queue, beginning with another one each time."""
        order = self.queues[self._next_queue :] + self.queues[: self._next_queue]
        self._next_queue = (self._next_queue + 1) % len(self.queues)
        for queue in order:
            if queue not in self._away:
                await self._serve(queue)
        claimable = bool(self._more - self._away.keys())
        if claimable and not self._draining and self._free() > 0:
            self._wake.set()
        elif not claimable:
            self._heard.set()
        self._note_room()

    async def _serve(self, queue: str) -> None:
        try:
            if self._unsure.get(queue):
                await self._settle_lost_claims(queue)
            if self._returns:
                await self._give_back(queue)
            await self._publish_and_fill(queue)
        except UNREACHABLE as error:
            self._away[queue] = self.loop.create_task(self._look_for(queue, error))
        else:
            self._tries.pop(queue, None)
            self._backoff.reset()

    async def _publish_and_fill(self, queue: str) -> None:
        """Both go out together, and Redis takes them in this order. What is claimed starts once the next turn has sent
        its own, so that Redis works while calls run."""
        publishing = self._publisher.begin(queue)
        try:
            await self._fill(queue)
        finally:
            if publishing is not None:
                if await publishing:
                    self._more.add(queue)
                if self._publisher.waits(queue):
                    self._wake.set()

    async def _look_for(self, queue: str, error: BaseException | None) -> None:
        """Until the queue's server answers. Apart from the turns, which a silent server would hold up."""
        while error is not None:
            await self._tries.setdefault(queue, Backoff(self.metrics)).wait(error)
            try:
                await self.broker.touch(queue)
                error = None
            except UNREACHABLE as still:
                error = still
        del self._away[queue]
        self._wake.set()

    async def _fill(self, queue: str) -> None:
        """Claims due calls into the free slots, half of all at most: so some run while Redis claims others."""
        if self._draining or queue not in self._more:
            return
        slots = min(self._free(), max(1, self.max_jobs // 2))
        if slots <= 0:
            if self._ahead:
                self._more.discard(queue)
                await self.broker.wake(queue)
            return
        ticket, sent = next(self._tickets), time.monotonic()
        self._alone = 0
        # Before the claim: a bell that rings while it is under way is for what it has not seen.
        self._more.discard(queue)
        self._reserved += slots
        try:
            turn = await self.broker.claim(queue, slots, self._heartbeats.next(), ticket)
        except BaseException:
            self._note_lost_claim(queue, ticket)
            raise
        finally:
            self._reserved -= slots
        self._clock.note(sent, turn.now_ms)
        self._take(queue, turn, sent)

    def _take(self, queue: str, turn: Turn, claimed: float) -> None:
        """Starts what was claimed; `claimed` is the earliest time at which it can have been."""
        if turn.more:
            self._note_due([queue])
        if queue in self._due:
            self._due.pop(queue).cancel()
        if 0 <= turn.due_ms < BELL_TIMEOUT_S * 1000:
            self._due[queue] = self.loop.call_later(turn.due_ms / 1000, self._note_due, [queue])
        if self._draining or (turn.calls and self._renewals.is_late(claimed)):
            self._returns += turn.calls
            self._wake.set()
            return
        self._taken += len(turn.calls)
        for claim in turn.calls:
            self._stop_call(claim.id, "interrupted")
            running = self._running[claim.id, claim.token] = self._newest[claim.id] = Running(claim, claimed)
            running.task = self.loop.create_task(self._carry_out(running))

    async def _carry_out(self, running: Running) -> None:
        claim = running.claim
        try:
            if running.begin():
                self._publisher.add(await self._execute(running))
            else:
                self._returns.append(claim)
        except Exception as error:
            log.critical("the executor raised on %s; its lease will end", claim.id, exc_info=error)
        finally:
            del self._running[claim.id, claim.token]
            if self._newest.get(claim.id) is running:
                del self._newest[claim.id]
            if self._alone >= SELDOM and not (self._running or self._in_turn or self._draining):
                # Nothing else ends meanwhile that could share a turn with it. That comes with the answer: Redis mostly
                # wakes on the core that woke it, and would wait until the turn is through.
                self._publisher.send_ahead(claim.queue, self._wake.set)
            else:
                self._wake.set()

    async def _give_back(self, queue: str) -> None:
        if batch := [claim for claim in self._returns if claim.queue == queue]:
            await self.broker.release(queue, batch)
            self._returns = without(self._returns, batch)

    def _note_lost_claim(self, queue: str, ticket: str) -> None:
        self._unsure.setdefault(queue, []).append(ticket)
        self._more.add(queue)
        self._wake.set()

    async def _settle_lost_claims(self, queue: str) -> None:
        """A claim whose answer never came may still have been made. What it claimed was not started: it goes back."""
        while tickets := self._unsure.get(queue):
            ticket = tickets[-1]
            released = await self.broker.undo_claim(queue, ticket)
            if released:
                log.warning("gave back %d calls of queue %s whose claim was cut off", released, queue)
            # Not the last one: another may have been lost meanwhile.
            tickets.remove(ticket)
            self._more.add(queue)

    async def _listen_ahead(self, queue: str) -> None:
        """Sleeps on the bell with the next claim behind it: Redis makes it the moment the bell rings."""
        while not self._draining:
            await self._room.wait()
            if looking := self._away.get(queue):
                self._clock.forget()
                await asyncio.wait({looking})
            if not self._clock.is_fresh:
                self._note_due([queue])
            if queue in self._more:
                self._heard.clear()
                await self._heard.wait()
                continue
            self._note_room()
            if self._room.is_set():
                try:
                    await self._claim_ahead(queue)
                except UNREACHABLE as error:
                    self._clock.forget()
                    await self._backoff.wait(error)

    async def _claim_ahead(self, queue: str) -> None:
        ticket, sent = next(self._tickets), time.monotonic()
        slots = min(self._free(), max(1, self.max_jobs // 2))
        self._ahead, self._reserved, taken = True, self._reserved + slots, False

        def take(turn: Turn) -> float:
            nonlocal taken
            taken, rung = True, time.monotonic()
            self._take(queue, turn, self._clock.earliest(turn.now_ms, sent, rung))
            alone = rung - sent > LULL_S and self._taken == self._taken_before + 1
            self._alone, self._taken_before = self._alone + 1 if alone else 0, self._taken
            # To write the next claim would take a core from Redis, and from who waits for the answer, before that is
            # out; where calls come seldom, nobody misses that claim meanwhile.
            return LULL_S if self._alone >= SELDOM else 0.0

        try:
            await self.broker.claim_when_rung(queue, BELL_TIMEOUT_S, slots, self._heartbeats.next(), ticket, take)
        except BaseException:
            # What has been taken runs: to undo its claim now would have it run again.
            if not taken:
                self._note_lost_claim(queue, ticket)
            raise
        finally:
            self._ahead, self._reserved = False, self._reserved - slots
        if not taken:
            self._note_due([queue])
            return
        self._note_room()
        # A call that came alone has run by now, or waits. Its answer goes out before the next claim is written.
        await asyncio.sleep(0)

    async def _listen(self) -> None:
        while not self._draining:
            await self._room.wait()
            rung = None
            try:
                rung = await self.broker.listen(
                    [queue for queue in self.queues if queue not in self._away] or self.queues, BELL_TIMEOUT_S
                )
            except UNREACHABLE as error:
                await self._backoff.wait(error)
            # Cleared only now: a turn that was under way when the bell rang has not heard it.
            self._heard.clear()
            self._note_due([rung] if rung else self.queues)
            await self._heard.wait()

    def _note_due(self, queues: Sequence[str]) -> None:
        self._more.update(queues)
        self._wake.set()

    def _note_room(self) -> None:
        if self._free() > 0 and not self._draining:
            self._room.set()
        else:
            self._room.clear()
