"""Becoming somebody else, or getting out of the namespaces."""

from __future__ import annotations

import re

from worker.policies.denylist.match import Match
from worker.policies.denylist.place import Place
from worker.shell.state import Call

_BECOMES = frozenset({
    "sudo", "doas", "su", "pkexec", "run0", "sudoedit", "runuser", "gosu", "su-exec", "visudo", "sudo-rs", "su-rs",
    "visudo-rs", "sux", "gksu", "gksudo", "kdesu", "kdesudo", "lxsudo", "beesu", "super", "please", "calife",
    "ssudo", "sudosh", "rootsh", "dzdo", "pbrun", "setuidgid", "newgrp", "sg", "machinectl-shell", "really",
    "op-sudo", "sudoreplay", "vipw", "vigr",
})  # fmt: skip
_ACCOUNTS = frozenset({
    "useradd", "adduser", "usermod", "userdel", "deluser", "groupadd", "groupmod", "groupdel", "gpasswd", "passwd",
    "chpasswd", "chsh", "chfn", "newusers", "addgroup", "delgroup", "chage",
})  # fmt: skip
_HOST_MOUNT = re.compile(
    r"/(?:etc|root|home|boot|dev|proc|sys|var|usr|bin|sbin|lib|var/run/docker\.sock|run/docker\.sock|var/run|run|var/lib|var/lib/docker|\.)?/?"
)
_ENGINES = frozenset({"docker", "podman", "nerdctl", "docker.io", "lima", "finch", "crictl"})


def judge(name: str, call: Call, place: Place) -> Match | None:
    """Privilege: sudo and kin, accounts, host namespaces, containers that see the host."""
    if name in _BECOMES:
        return Match("privilege", f"{name} acts as another user")
    if name in _ACCOUNTS and "--help" not in call.argv:
        return Match("privilege", f"{name} changes accounts")
    if name == "nsenter" and len(call.argv) > 1 and not {"--help", "-h", "--version", "-V"} & set(call.argv[1:]):
        return Match("privilege", "nsenter enters other namespaces")
    if name in _ENGINES:
        return _container(call, place)
    if name == "setpriv" and any(re.match(r"--(reu|ru|eu)", word) for word in call.argv):
        return Match("privilege", "setpriv acts as another user")
    if name == "setcap" and len(call.argv) > 1:
        return Match("privilege", "setcap gives a file capabilities")
    if name == "machinectl" and "shell" in call.argv:
        return Match("privilege", "machinectl shell acts as another user")
    if name == "systemd-run" and any(word.startswith(("--uid", "--gid", "--machine", "-M")) for word in call.argv):
        return Match("privilege", "systemd-run acts as another user")
    if name in ("lxc", "incus") and ("security.privileged=true" in call.argv or "source=/" in call.argv):
        return Match("privilege", "a container with the host's root")
    return None


def _container(call: Call, place: Place) -> Match | None:
    arguments = call.argv[1:]
    if not any(word in ("run", "create", "exec", "container") for word in arguments[:4]):
        return None
    for at, word in enumerate(arguments):
        following = arguments[at + 1] if at + 1 < len(arguments) else ""
        name, equals, value = word.partition("=")
        value = value if equals else following
        if name == "--privileged" and value != "false":
            return Match("privilege", "a privileged container")
        if name in ("--pid", "--ipc", "--uts", "--userns", "--cgroupns") and value == "host":
            return Match("privilege", f"a container in the host's {name[2:]} namespace")
        if name == "--cap-add" and value.upper().removeprefix("CAP_") in (
            "ALL",
            "SYS_ADMIN",
            "SYS_PTRACE",
            "SYS_MODULE",
            "DAC_READ_SEARCH",
            "SYS_RAWIO",
        ):
            return Match("privilege", f"a container with {value}")
        if name == "--security-opt" and "unconfined" in value:
            return Match("privilege", "an unconfined container")
        if name == "--device" and re.match(r"/dev/(sd|nvme|vd|hd|mem|kmem|dm-|mapper)", value):
            return Match("privilege", "a container with a disk of the host")
        source = ""
        if name in ("-v", "--volume"):
            source = value.split(":")[0]
        elif word.startswith("-v") and len(word) > 2 and not word.startswith("--"):
            source = word[2:].lstrip("=").split(":")[0]
        elif name == "--mount":
            found = re.search(r"(?:src|source)=([^,]+)", word + "," + following)
            source = found.group(1) if found else ""
        if source and source.startswith("/") and _HOST_MOUNT.fullmatch(place.resolve("/", source) or ""):
            return Match("privilege", f"a container that sees {source} of the host")
    return None
