"""Every key in Redis: one function each, with its type, writer, reader and life.

The queue's name is the hash tag of all keys that belong to it, so that each script stays in one slot of a cluster.
`q` is a queue, `s` a session, `c` a call, `w` a workspace. "Life" says what ends the key.
"""

from __future__ import annotations


def job_id(q: str, s: str, c: str) -> str:
    """The arq job id of a call, and the member of the queue's sorted set."""
    return f"{{{q}}}:{s}:{c}"


def queue(q: str) -> str:
    """Sorted set of job ids by due time in ms. Writer agent and worker; reader worker. Life: empties as calls run."""
    return f"arq:queue:{{{q}}}"


def batch(q: str) -> str:
    """Sorted set like `queue`, for calls of priority batch."""
    return f"arq:queue:{{{q}}}:batch"


def job(q: str, s: str, c: str) -> str:
    """String: the payload. Writer agent (SET NX PX); reader worker. Life: PX, removed when finished."""
    return f"arq:job:{{{q}}}:{s}:{c}"


def in_progress(q: str, s: str, c: str) -> str:
    """String: `token/ticket/ms owner`: the claim's fencing token, its ticket, when it was made, and whose it is.

    Writer worker; reader worker and dashboard. Life: removed when the call ends; PX from the lease's first renewal on.
    """
    return f"arq:in-progress:{{{q}}}:{s}:{c}"


def leases(q: str) -> str:
    """Sorted set of claimed or granted job ids by the ms at which they may be claimed again. Worker only."""
    return f"reef:{{{q}}}:leases"


def fence(q: str) -> str:
    """Counter: the last fencing token. Worker only. Life: for ever."""
    return f"reef:{{{q}}}:fence"


def bell(q: str) -> str:
    """List that wakes a worker. Writer agent and worker; emptied by each claim."""
    return f"reef:{{{q}}}:bell"


def wake(q: str, worker: str) -> str:
    """List that wakes one worker, rung by itself. Worker only. Life: PX."""
    return f"reef:{{{q}}}:wake:{worker}"


def session(q: str, s: str) -> str:
    """Hash: workspace, mode, taint and its history. Writer orchestrator and worker. Life: until closed."""
    return f"reef:{{{q}}}:session:{s}"


def running(q: str, s: str) -> str:
    """Hash of the session's calls that are claimed, granted or waiting. Writer worker; the others read. Life: removed
    when empty; PX from when a call waits, or runs for longer than a renewal of its lease.

    Field a call: `r`, `e` holds the session as reader or alone, `x` is answered without running, each with how often it
    was claimed (`r1`); `R`, `E` waits to, with the bytes of its payload (`E120`). Fields `#r`, `#e`, `#x`, `#w` count
    them, `#b` the bytes that wait.
    """
    return f"reef:{{{q}}}:running:{s}"


def waiting(q: str, s: str) -> str:
    """List of calls that wait for their session, first come first. Worker only. Life: TTL, removed when empty."""
    return f"reef:{{{q}}}:waiting:{s}"


def workspace(q: str, w: str) -> str:
    """Hash: level, pin. Writer orchestrator and worker. Life: until retired with its files."""
    return f"reef:{{{q}}}:workspace:{w}"


def replies(q: str, s: str) -> str:
    """Stream: one field `reply`, JSON. Writer worker; reader agent. Life: TTL, capped in length."""
    return f"reef:{{{q}}}:replies:{s}"


def done(q: str, s: str, c: str) -> str:
    """String: digest of the call, stream id of its reply, and the reply up to 4 KB, a space between. Life: PX."""
    return f"reef:{{{q}}}:done:{s}:{c}"


def plan(q: str, s: str) -> str:
    """Hash: digest, version, body, scope of the proposed plan. Writer worker; all roles read. Life: TTL."""
    return f"reef:{{{q}}}:plan:{s}"


def plans(q: str) -> str:
    """Sorted set: sessions by the ms at which they last proposed a plan. Writer worker; reader dashboard. Life: PX, the
    latest 1,000."""
    return f"reef:{{{q}}}:plans"


def approval(q: str, s: str) -> str:
    """Hash: digest, verdict, approver, expiry, reason, scope, nonce, signature. Writer approver only. Life: TTL."""
    return f"reef:{{{q}}}:approval:{s}"


def nonces(q: str, s: str) -> str:
    """Hash: an approval's nonce to the one plan it counted for. Worker only. Life: PX, longer than the approvals'."""
    return f"reef:{{{q}}}:nonces:{s}"


def permit(q: str, s: str, digest: str) -> str:
    """Hash: nonce, verdict, approver, expiry, reason of an answer to one call. Writer approver only. Life: PX."""
    return f"reef:{{{q}}}:permit:{s}:{digest}"


def used(q: str, s: str, digest: str) -> str:
    """String: nonce of the permit that was used up, the call that did, when. Writer worker. Life: PX."""
    return f"reef:{{{q}}}:used:{s}:{digest}"


def asks(q: str) -> str:
    """Stream: one entry an ask, JSON. Writer worker; reader approver and dashboard. Life: TTL, capped in length."""
    return f"reef:{{{q}}}:asks"


def rate(q: str, scope: str) -> str:
    """String: when a token bucket will be full again, in ms. `scope` is `tenant`, `session:<s>` or `tool:<tool>`.

    Worker only. Life: PX, until then.
    """
    return f"reef:{{{q}}}:rate:{scope}"


def stored(q: str, scope: str) -> str:
    """String: bytes stored in the window, `scope` as of `rate`. Worker only. Life: PX, the window."""
    return f"reef:{{{q}}}:stored:{scope}"


def active(q: str) -> str:
    """Hash: running calls to their tool, `#<scope>` to how many run, where that is limited. Worker only. Life: PX."""
    return f"reef:{{{q}}}:active"


def cancel(q: str, s: str, c: str) -> str:
    """String: somebody wants the call ended. Writer agent (own session) and orchestrator. Life: PX."""
    return f"reef:{{{q}}}:cancel:{s}:{c}"


def cancel_channel(q: str) -> str:
    """Channel that wakes workers with a `session:call`; the key above is what counts."""
    return f"reef:{{{q}}}:cancelled"


def workers(q: str) -> str:
    """Hash: worker id to its heartbeat, JSON. Writer worker; reader dashboard. Life: TTL, stale fields removed."""
    return f"reef:{{{q}}}:workers"


def audit(q: str) -> str:
    """Stream: one entry a call. Writer worker; reader auditor. Life: capped in length."""
    return f"reef:{{{q}}}:audit"


def heads(q: str) -> str:
    """Hash: a worker's audit log to `seq hash ms` of its last entry in the stream, which is trimmed. Writer worker;
    reader auditor. Life: PX, over a year; the oldest of more than 10,000 is dropped."""
    return f"reef:{{{q}}}:heads"


def dead(q: str) -> str:
    """Stream of queue entries that can't be answered. Writer worker; reader dashboard. Life: capped in length."""
    return f"reef:{{{q}}}:dead"


def actions(q: str) -> str:
    """Stream: one entry an action of a person. Writer orchestrator and approver, before they act; reader dashboard
    and auditor. Life: TTL, capped in length."""
    return f"reef:{{{q}}}:actions"


def pressure(q: str) -> str:
    """String: how full the queue is and how full it may be, numbers as `contracts.pressure` reads them. Writer worker,
    once a second at most; reader agent. Life: PX."""
    return f"reef:{{{q}}}:pressure"


def parked(q: str) -> str:
    """Hash: `calls` and `bytes` that wait for their sessions' turn. Worker only. Life: PX; removed when none does."""
    return f"reef:{{{q}}}:parked"
