"""Power, processes, kernel, firewall, services."""

from __future__ import annotations

import re

from worker.policies.denylist.match import Match
from worker.policies.denylist.place import Place
from worker.shell.options import parse
from worker.shell.state import Call
from worker.shell.written import targets

_POWER = frozenset(
    {"reboot", "shutdown", "halt", "poweroff", "telinit", "pm-suspend", "pm-hibernate", "rtcwake", "systemd-reboot"}
)
_POWER_VERBS = frozenset(
    {
        "reboot",
        "poweroff",
        "halt",
        "kexec",
        "suspend",
        "hibernate",
        "hybrid-sleep",
        "soft-reboot",
        "emergency",
        "rescue",
        "default",
        "isolate",
        "exit",
        "switch-root",
        "suspend-then-hibernate",
    }
)
_SERVICE_VERBS = frozenset(
    {
        "enable",
        "disable",
        "mask",
        "unmask",
        "stop",
        "start",
        "restart",
        "kill",
        "set-default",
        "daemon-reload",
        "daemon-reexec",
        "edit",
        "link",
        "reenable",
        "preset",
        "revert",
        "set-property",
        "set-environment",
        "import-environment",
        "try-restart",
        "reload",
        "add-wants",
    }
)
_KERNEL = frozenset(
    {
        "insmod",
        "rmmod",
        "modprobe",
        "kexec",
        "kmod",
        "dkms",
        "depmod",
        "bpftool",
        "bpftrace",
        "setenforce",
        "auditctl",
        "aa-disable",
        "aa-teardown",
        "apparmor_parser",
        "kpatch",
    }
)
_FIREWALL = frozenset(
    {
        "iptables",
        "ip6tables",
        "nft",
        "ufw",
        "firewall-cmd",
        "iptables-restore",
        "ip6tables-restore",
        "ebtables",
        "arptables",
        "ipset",
        "pfctl",
        "iptables-legacy",
        "iptables-nft",
        "nft-restore",
        "shorewall",
    }
)
_SYSCTL_WRITES = frozenset({"-w", "--write", "-p", "--load", "--system", "-f"})
_HELP = frozenset({"--help", "-h", "--version", "-V", "help"})


def judge(name: str, call: Call, place: Place) -> Match | None:
    """Power, every process, kernel modules and settings, firewall, services."""
    arguments = call.argv[1:]
    if arguments and set(arguments) <= _HELP:
        return None
    if name in _POWER:
        return Match("power", f"{name} stops or restarts the machine")
    if name == "init" and arguments and re.fullmatch(r"[0-6sSqQuU]", arguments[0]):
        return Match("power", "init changes the runlevel")
    if name in ("systemctl", "loginctl"):
        return _systemctl(name, arguments)
    if (
        name in ("service", "rc-service", "rc-update", "update-rc.d", "chkconfig", "initctl", "sv", "launchctl")
        and len(arguments) > 1
    ):
        return (
            None
            if "status" in arguments or "--status-all" in arguments
            else Match("service", f"{name} changes a service")
        )
    if name in ("kill", "killall", "pkill", "skill", "snice", "killall5", "fuser", "xkill", "slay"):
        return _kill(name, arguments)
    return _settings(name, arguments)


def _settings(name: str, arguments: tuple[str, ...]) -> Match | None:
    """Kernel, firewall, clock, service manager."""
    if (
        name in _KERNEL
        and arguments
        and not (
            set(arguments) & {"-n", "--dry-run", "list", "status", "-V"}
            or (name == "auditctl" and arguments[0] in ("-l", "-s"))
        )
    ):
        return Match("kernel", f"{name} changes the kernel")
    if name == "sysctl" and any(word in _SYSCTL_WRITES or "=" in word for word in arguments):
        return Match("kernel", "sysctl changes kernel settings")
    if (
        name in _FIREWALL
        and arguments
        and not set(arguments)
        <= {
            "-L",
            "-S",
            "-n",
            "-v",
            "list",
            "status",
            "--list",
            "ruleset",
            "-nL",
            "-nvL",
            "-t",
            "nat",
            "verbose",
            "--list-all",
            "--state",
            "tables",
        }
    ):
        return Match("firewall", f"{name} changes the firewall")
    if name in ("hostnamectl", "timedatectl", "localectl") and any(word.startswith("set-") for word in arguments):
        return Match("kernel", f"{name} changes the machine's settings")
    if name in ("date", "hwclock") and any(word.startswith(("-s", "--set", "--systohc", "-w")) for word in arguments):
        return Match("kernel", f"{name} sets the clock")
    if (
        name in ("dbus-send", "busctl", "gdbus", "qdbus")
        and re.search(r"login1|systemd1|PowerOff|Reboot|Halt", " ".join(arguments))
        and re.search(r"PowerOff|Reboot|Halt|Suspend|StartUnit|StopUnit", " ".join(arguments))
    ):
        return Match("power", "a message to the service manager")
    return None


def _systemctl(name: str, arguments: tuple[str, ...]) -> Match | None:
    parsed = parse(arguments, "tpnosHMP", ("type", "property", "state", "lines", "output", "signal", "host", "machine"))
    verb = parsed.operands[0] if parsed.operands else ""
    if verb in _POWER_VERBS:
        return Match("power", f"{name} {verb} stops or restarts the machine")
    if parsed.has("user") and verb not in ("enable", "link", "edit", "mask"):
        return None
    if verb in _SERVICE_VERBS or (name == "loginctl" and verb.startswith(("terminate", "kill"))):
        return Match("service", f"{name} {verb} changes services of the machine")
    return None


def _kill(name: str, arguments: tuple[str, ...]) -> Match | None:
    if name == "killall5":
        return Match("every_process", "killall5 signals every process")
    if name == "kill":
        words = [word for word in arguments if word != "--"]
        if words[:1] in (["-l"], ["-L"], ["--list"], ["--table"]):
            return None
        targets = words[1:] if words and re.fullmatch(r"-(?:[A-Za-z]\w*\+?\d*|\d+)", words[0]) else words
        if words[:1] in (["-s"], ["-n"], ["--signal"]):
            targets = words[2:]
        if arguments[:1] == ("--",):
            targets = words
        elif words == ["-1"]:
            targets = []
        for word in targets:
            if word in ("-1", "1") or re.fullmatch(r"-0*1|0*1", word):
                return Match("every_process", "it signals every process, or the first one")
        return None
    if name in ("pkill", "skill", "slay", "killall"):
        parsed = parse(
            arguments, "uUgGPtsnd", ("user", "signal", "uid", "euid", "group", "parent", "terminal", "pidfile")
        )
        whole = [
            word for word in parsed.operands if word in (".", ".*", "", "^", ".+", "systemd", "init", "sshd", "*", "-1")
        ]
        if (
            whole
            or ((parsed.has("u", "user", "U", "uid", "euid") or name == "slay") and not parsed.operands)
            or parsed.has("v", "inverse")
        ):
            return Match("every_process", f"{name} signals every process of a user")
    if (
        name == "fuser"
        and any(word.startswith("-") and "k" in word and not word.startswith("--") for word in arguments)
        and {"/", "/home", "/usr", "/tmp", "/dev"} & set(arguments)  # noqa: S108
    ):
        return Match("every_process", "fuser -k ends every process that uses the file system")
    return None


def redirect(op: str, target: str, call: Call, place: Place) -> Match | None:
    """Writing to the kernel's control files."""
    path = place.resolve(call.cwd, target) or ""
    if path == "/proc/sysrq-trigger":
        return Match("power", "a magic system request")
    if path.startswith(("/proc/sys/", "/sys/")) or re.fullmatch(
        r"/proc/\d+/.*|/proc/self/(mem|oom_score_adj|uid_map)", path
    ):
        return Match("kernel", f"it would write to {path}")
    return None


def written(name: str, call: Call, place: Place) -> Match | None:
    """The same through `tee`, `dd of=`, `cp`."""
    for target in targets(name, call):
        match = redirect(">", target, call, place)
        if match:
            return match
    return None
