"""The Starlette app: pages, their data as JSON and as events, and the few things a person may do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from contracts.approver import NothingToJudge
from contracts.calls import check_name
from contracts.codec import encode
from contracts.connection import UNREACHABLE
from contracts.levels import Level
from worker.approvals import Approvals
from worker.dashboard.actions import Actions, NotAllowed, NotPossible, Verdict
from worker.dashboard.guard import Guard
from worker.dashboard.live import Live, Params, TooMany, View
from worker.dashboard.openapi import document
from worker.dashboard.people import People, Person
from worker.dashboard.people_records import CancelBody, Fault, JudgeBody, Me
from worker.dashboard.reads import Reads
from worker.dashboard.stream import EventStream
from worker.dashboard.views import build_views
from worker.secrets import Redactor
from worker.version import version_of_product

STATIC = Path(__file__).parent / "static"
MAX_BODY_BYTES = 64 * 1024
MAX_STREAMS = 500
READY_S = 1.0

T = TypeVar("T")

PAGES = ("/", "/workers", "/running", "/calls", "/sessions", "/plans", "/failures")
DEEP_PAGES = ("/calls/{queue}/{session}/{call}", "/sessions/{queue}/{session}")
VERDICTS: tuple[tuple[str, str, Verdict], ...] = (
    ("plans", "approve", "approve"),
    ("plans", "reject", "reject"),
    ("asks", "approve", "approve_call"),
    ("asks", "reject", "reject_call"),
)

_STATUS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int, str], ...] = (
    (NotAllowed, 403, "not_allowed"),
    (NotPossible, 501, "not_possible"),
    (NothingToJudge, 409, "nothing_to_judge"),
    (TooMany, 503, "too_many"),
    (LookupError, 404, "unknown"),
    (ValueError, 400, "malformed"),
    (UNREACHABLE, 503, "redis_unreachable"),
)


class Config(Struct, frozen=True, kw_only=True):
    """What the dashboard is made of. `payloads` is the highest level whose payloads are shown, None for none.

    `approvals` tells which verdicts on plans count.
    """

    reads: Reads
    actions: Actions
    approvals: Approvals
    people: People
    redactor: Redactor
    hosts: tuple[str, ...]
    payloads: Level | None


class Dashboard:
    """The handlers. `stopping` ends the open streams; set it when the server is told to stop."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._views = build_views(config.reads, config.redactor, config.payloads, config.approvals)
        self._live = Live()
        self._streams = 0
        self._ready: tuple[float, str] = (float("-inf"), "")
        self.stopping = asyncio.Event()

    def app(self) -> ASGIApp:
        """The app with its guard before it."""
        look, act = self._look, self._act
        routes = [
            *(Route(path, _page, methods=["GET"]) for path in (*PAGES, *DEEP_PAGES)),
            Route("/healthz", _healthy),
            Route("/readyz", self._is_ready),
            Route("/api/openapi.json", look(self._document)),
            Route("/api/me", look(self._me)),
            Route("/api/live/{view}", look(self._follow)),
            Route("/api/queues", look(self._view("queues"))),
            Route("/api/workers", look(self._view("workers"))),
            Route("/api/running", look(self._view("running"))),
            Route("/api/calls", look(self._view("calls"))),
            Route("/api/calls/{queue}/{session}/{call}", look(self._view("call"))),
            Route("/api/calls/{queue}/{session}/{call}/cancel", act(self._cancel), methods=["POST"]),
            Route("/api/sessions", look(self._view("sessions"))),
            Route("/api/sessions/{queue}/{session}", look(self._view("session"))),
            Route("/api/plans", look(self._view("plans"))),
            *(
                Route(f"/api/{path}/{{queue}}/{{session}}/{word}", act(self._judge(verdict)), methods=["POST"])
                for path, word, verdict in VERDICTS
            ),
            Route("/api/failures", look(self._view("failures"))),
            Mount("/static", _Static(directory=STATIC)),
        ]
        app = Starlette(routes=routes, lifespan=self._life, exception_handlers={404: _not_found, 405: _not_found})
        return Guard(app, people=self._config.people, hosts=self._config.hosts)

    @contextlib.asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self._live.close()
            await self._config.reads.close()

    # -- looking

    def _look(self, handle: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Any]]:
        """For everybody who may look."""

        async def guarded(request: Request) -> Any:
            if not _person(request).may("viewer"):
                return _fault(401, "sign_in", "this needs a token")
            return await _answered(handle(request))

        return guarded

    def _view(self, name: str) -> Callable[[Request], Awaitable[Any]]:
        async def handle(request: Request) -> Response:
            view = self._views[name]
            return _json(await self._live.once(view, _params(request, view)))

        return handle

    async def _follow(self, request: Request) -> Any:
        view = self._views.get(request.path_params["view"])
        if view is None:
            raise LookupError("there is no such view")
        params = _params(request, view)
        if self._streams >= MAX_STREAMS:
            raise TooMany("too many pages are open")
        # Read once before: what is malformed or unknown is an answer of its own kind, not a stream.
        with contextlib.suppress(*UNREACHABLE):
            await self._live.once(view, params)
        self._streams += 1
        stream = EventStream(self._live, self._live.follow(view, params), self.stopping)

        async def counted(scope: Any, receive: Any, send: Any) -> None:
            try:
                await stream(scope, receive, send)
            finally:
                self._streams -= 1

        return counted

    async def _me(self, request: Request) -> Response:
        person, config = _person(request), self._config
        me = Me(
            name=person.name,
            roles=sorted(person.roles),
            can_cancel=person.may("operator") and config.actions.can_cancel,
            can_judge=person.may("approver") and config.actions.can_judge,
            queues=list(config.reads.queues),
            payloads=config.payloads.value if config.payloads else None,
            sign_in=config.people.can_sign_in,
            version=version_of_product(),
        )
        return _json(encode(me))

    async def _document(self, _: Request) -> Response:
        return _json(encode(document()))

    async def _is_ready(self, _: Request) -> Response:
        loop = asyncio.get_running_loop()
        # At most one PING a second, however often somebody asks who need not say who they are.
        if loop.time() - self._ready[0] > READY_S:
            try:
                await self._config.reads.ping()
                fault = ""
            except UNREACHABLE as error:
                fault = type(error).__name__
            self._ready = (loop.time(), fault)
        if self._ready[1]:
            return _fault(503, "redis_unreachable", f"Redis does not answer: {self._ready[1]}")
        return _json(b'{"ready":true}')

    # -- acting

    def _act(self, handle: Callable[[Request, Person], Awaitable[Any]]) -> Callable[[Request], Awaitable[Any]]:
        async def guarded(request: Request) -> Any:
            person = _person(request)
            if not person.roles:
                return _fault(401, "sign_in", "this needs a token")
            return await _answered(handle(request, person))

        return guarded

    async def _cancel(self, request: Request, person: Person) -> Response:
        body = await _body(request, CancelBody)
        queue, session = self._target(request)
        call = check_name("call", request.path_params["call"])
        return _json(encode(await self._config.actions.cancel(person, queue, session, call, body.reason)))

    def _judge(self, verdict: Verdict) -> Callable[[Request, Person], Awaitable[Response]]:
        async def handle(request: Request, person: Person) -> Response:
            body = await _body(request, JudgeBody)
            queue, session = self._target(request)
            done = await self._config.actions.judge(
                person, verdict, queue, session, digest=body.digest, reason=body.reason, life_s=body.life_s
            )
            return _json(encode(done))

        return handle

    def _target(self, request: Request) -> tuple[str, str]:
        queue = request.path_params["queue"]
        if queue not in self._config.reads.queues:
            raise LookupError(f"queue {queue[:64]!r} is not watched here")
        return queue, check_name("session", request.path_params["session"])


class _Static(StaticFiles):
    """Files that the browser asks for again each time, and mostly gets a 304 for."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        return response


async def _page(_: Request) -> Response:
    """Every page is the same file: its script reads the address and asks for the data."""
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _healthy(_: Request) -> Response:
    return _json(b'{"alive":true}')


async def _not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return _fault(status, "unknown" if status == 404 else "wrong_method", f"nothing here for {request.method}")


async def _answered(handling: Awaitable[T]) -> T | Response:
    """What the handler answers, or the fault its exception stands for."""
    try:
        return await handling
    except (NotAllowed, NotPossible, TooMany, LookupError, ValueError, *UNREACHABLE) as error:
        status, code = next((status, code) for kind, status, code in _STATUS if isinstance(error, kind))
        return _fault(status, code, str(error.args[0]) if error.args else type(error).__name__)


async def _body(request: Request, kind: type[T]) -> T:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY_BYTES:
            raise ValueError("the body is too long")
    return msgspec.json.decode(data, type=kind)


def _params(request: Request, view: View) -> Params:
    given: Mapping[str, str] = {**request.query_params, **request.path_params}
    return {name: given[name] for name in view.params if name in given}


def _person(request: Request) -> Person:
    person: Person = request.scope["state"]["person"]
    return person


def _json(data: bytes) -> Response:
    return Response(data, media_type="application/json")


def _fault(status: int, code: str, message: str) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return Response(encode(Fault(error=code, message=message)), status, headers, "application/json")
