"""Redis users by role, made from the keys: who may run which commands on which of them.

    python -m contracts.acl [QUEUE ...]    prints deploy/redis/users.acl

Each grant becomes a selector of its own (Redis 7), so that a command is allowed on its own keys only: an agent may
SET its job but not the bell. Nobody can log in as `default`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from contracts import keys
from contracts.calls import check_name

Pattern = Callable[[str, str], str]
"""(queue, session) -> key pattern; the session may be `*`."""

_QUEUE: tuple[Pattern, ...] = (lambda q, s: keys.queue(q), lambda q, s: keys.batch(q))
_JOB: Pattern = lambda q, s: keys.job(q, s, "*")  # noqa: E731 (a table of patterns reads better than ten functions)
_DONE: Pattern = lambda q, s: keys.done(q, s, "*")  # noqa: E731
_CANCEL: Pattern = lambda q, s: keys.cancel(q, s, "*")  # noqa: E731
_IN_PROGRESS: Pattern = lambda q, s: keys.in_progress(q, s, "*")  # noqa: E731
_WORKSPACE: Pattern = lambda q, s: keys.workspace(q, "*")  # noqa: E731
_PERMIT: Pattern = lambda q, s: keys.permit(q, s, "*")  # noqa: E731
_PLANS: Pattern = lambda q, s: keys.plans(q)  # noqa: E731
_USED: Pattern = lambda q, s: keys.used(q, s, "*")  # noqa: E731
_ASKS: Pattern = lambda q, s: keys.asks(q)  # noqa: E731
_RATE: Pattern = lambda q, s: keys.rate(q, "*")  # noqa: E731
_STORED: Pattern = lambda q, s: keys.stored(q, "*")  # noqa: E731
_ACTIVE: Pattern = lambda q, s: keys.active(q)  # noqa: E731
_BELL: Pattern = lambda q, s: keys.bell(q)  # noqa: E731
_WAKE: Pattern = lambda q, s: keys.wake(q, "*")  # noqa: E731
_LEASES: Pattern = lambda q, s: keys.leases(q)  # noqa: E731
_FENCE: Pattern = lambda q, s: keys.fence(q)  # noqa: E731
_WORKERS: Pattern = lambda q, s: keys.workers(q)  # noqa: E731
_AUDIT: Pattern = lambda q, s: keys.audit(q)  # noqa: E731
_HEADS: Pattern = lambda q, s: keys.heads(q)  # noqa: E731
_DEAD: Pattern = lambda q, s: keys.dead(q)  # noqa: E731
_PRESSURE: Pattern = lambda q, s: keys.pressure(q)  # noqa: E731
_PARKED: Pattern = lambda q, s: keys.parked(q)  # noqa: E731
_ACTIONS: Pattern = lambda q, s: keys.actions(q)  # noqa: E731

_READ_HASH = "hget hmget hgetall"
_READ_STREAM = "xread xrange xrevrange xlen"
_READ_SORTED_SET = "zcard zcount zrange zscore"


class Grant(Struct, frozen=True):
    """Commands, and the keys they are allowed on. Without keys, commands that have none."""

    commands: str
    read: Sequence[Pattern] = ()
    write: Sequence[Pattern] = ()
    cancel_channel: bool = False


# CLUSTER SLOTS tells a client of a cluster whom to ask.
_ANYBODY = Grant("ping time client|setname client|id cluster|slots")

# What claim, finish and the other scripts run, and what the worker sends itself. Redis compares a key with one pattern
# after another, for each command of a script: so those that most calls need come first.
_WORKER_COMMANDS = (
    "evalsha script|load blpop lpush rpush lpop lrem llen lrange "
    "get mget set mset incrby del exists strlen getrange pexpire persist pttl type "
    "hget hmget hgetall hkeys hset hsetnx hdel hlen hexists hincrby "
    "zadd zrem zremrangebyrank zscore zcard zrange zrangebyscore xadd xlen info"
)

ROLES: dict[str, tuple[Grant, ...]] = {
    "agent": (
        _ANYBODY,
        Grant("set", write=(_JOB, _CANCEL)),
        Grant("zadd", write=_QUEUE),
        Grant("zcard", read=_QUEUE),
        Grant("lpush", write=(_BELL,)),
        Grant("get exists pttl", read=(_JOB, _DONE, _PRESSURE)),
        Grant(_READ_STREAM, read=(keys.replies,)),
        Grant(_READ_HASH, read=(keys.plan,)),
        Grant("exists", read=(_WORKERS,)),
        Grant("publish", cancel_channel=True),
    ),
    "orchestrator": (
        _ANYBODY,
        Grant(
            f"{_READ_HASH} exists", read=(keys.session, _WORKSPACE, keys.plan, keys.approval, keys.running, _WORKERS)
        ),
        Grant("hset hsetnx hdel", write=(keys.session, _WORKSPACE)),
        Grant("pexpire persist", write=(keys.session,)),
        Grant("del", write=(keys.session, _WORKSPACE, keys.plan, keys.approval, keys.replies, _DONE)),
        Grant("pttl", read=(keys.replies,)),
        Grant(_READ_SORTED_SET, read=(*_QUEUE, _LEASES)),
        Grant("xlen", read=(_DEAD,)),
        Grant(_READ_STREAM, read=(keys.replies,)),
        Grant("set", write=(_CANCEL,)),
        Grant("publish", cancel_channel=True),
        Grant("xadd pexpire", write=(_ACTIONS,)),
    ),
    "approver": (
        _ANYBODY,
        Grant(_READ_HASH, read=(keys.session, _WORKSPACE, keys.plan, keys.approval, keys.running)),
        Grant("hget hgetall", read=(_PERMIT,)),
        Grant("get", read=(_USED,)),
        Grant(_READ_STREAM, read=(_ASKS,)),
        Grant("del hset expire pexpire", write=(keys.approval, _PERMIT)),
        Grant("multi exec discard"),
        Grant("xadd pexpire", write=(_ACTIONS,)),
    ),
    "worker": (
        _ANYBODY,
        Grant(
            _WORKER_COMMANDS,
            read=(keys.approval, _PERMIT),
            write=(
                keys.running,
                _IN_PROGRESS,
                _JOB,
                keys.session,
                keys.replies,
                _DONE,
                _CANCEL,
                _AUDIT,
                _WORKSPACE,
                keys.waiting,
                _LEASES,
                *_QUEUE,
                _FENCE,
                _BELL,
                _WAKE,
                _WORKERS,
                _PRESSURE,
                _PARKED,
                _HEADS,
                _RATE,
                _STORED,
                _ACTIVE,
                _ASKS,
                _USED,
                _DEAD,
                keys.plan,
                _PLANS,
                keys.nonces,
            ),
        ),
        Grant("subscribe unsubscribe publish", cancel_channel=True),
    ),
    "dashboard": (
        _ANYBODY,
        Grant("info"),
        Grant(_READ_SORTED_SET, read=(*_QUEUE, _LEASES, _PLANS)),
        Grant(_READ_HASH, read=(keys.session, _WORKSPACE, keys.plan, keys.approval, keys.running, _WORKERS)),
        Grant("llen lrange", read=(keys.waiting,)),
        Grant("hget hgetall", read=(_PERMIT,)),
        Grant("get exists pttl", read=(_IN_PROGRESS, _DONE, _CANCEL, _USED, _PRESSURE)),
        Grant("getrange strlen exists", read=(_JOB,)),
        Grant(_READ_STREAM, read=(_AUDIT, _DEAD, _ACTIONS, _ASKS, keys.replies)),
    ),
    "auditor": (
        _ANYBODY,
        Grant(_READ_STREAM, read=(_AUDIT, _DEAD, _ACTIONS)),
        Grant(_READ_HASH, read=(_HEADS, keys.session)),
    ),
    "provisioner": (
        _ANYBODY,
        Grant("acl|setuser acl|deluser acl|getuser acl|users acl|list acl|save acl|load acl|genpass"),
    ),
}


DEFAULT_USER = "user default reset off ~* &* +@all"
"""Nobody can log in as it. Redis itself reads its append-only file with its rights: without them Redis 7.0 leaves out
every transaction and every script's effects when it starts again, and says nothing."""


def rules(role: str, queues: Iterable[str], session: str = "*") -> list[str]:
    """The rules of a role's user, for ACL SETUSER or a line of an ACL file; without name and password.

    With a session, an agent reaches that session's keys only.

    Raises:
        KeyError: there is no such role.
        ValueError: a name is malformed.
    """
    names = [check_name("queue", queue) for queue in queues]
    if session != "*":
        check_name("session", session)
    anybody, *grants = ROLES[role]
    return ["reset", *_commands(anybody), *(f"({' '.join(_selector(grant, names, session))})" for grant in grants)]


def users_acl(queues: Iterable[str] = ("default",), passwords: Mapping[str, str] | None = None) -> str:
    """An ACL file with one user a role, each over all the queues.

    Without `passwords` (by role), `#<role>` stands where the hash of the role's password belongs.

    Raises:
        ValueError: a queue's name is malformed.
    """
    names = list(queues)
    lines = [DEFAULT_USER]
    for role in ROLES:
        secret = f"#<{role}>" if passwords is None else f"#{hashlib.sha256(passwords[role].encode()).hexdigest()}"
        reset, *granted = rules(role, names)
        lines.append(" ".join(("user", role, reset, "on", secret, *granted)))
    return "\n".join(lines) + "\n"


def _commands(grant: Grant) -> list[str]:
    return [f"+{command}" for command in grant.commands.split()]


def _selector(grant: Grant, queues: Sequence[str], session: str) -> Iterable[str]:
    yield from _commands(grant)
    for queue in queues:
        for access, patterns in (("%RW~" if grant.read else "%W~", grant.write), ("%R~", grant.read)):
            yield from (access + pattern(queue, session) for pattern in patterns)
        if grant.cancel_channel:
            yield f"&{keys.cancel_channel(queue)}"


if __name__ == "__main__":
    sys.stdout.write(users_acl(sys.argv[1:] or ("default",)))
