"""What would outlive the command: schedules, start-up files, keys; and secrets that must not be read."""

from __future__ import annotations

import re

from worker.policies.denylist.match import Match
from worker.policies.denylist.place import Place
from worker.shell import marks
from worker.shell.paths import contains
from worker.shell.state import Call
from worker.shell.written import targets

_START_UP = re.compile(
    r"\.(bashrc|bash_profile|bash_login|profile|bash_logout|bash_aliases|zshrc|zshenv|zprofile|zlogin|zlogout|kshrc|"
    r"cshrc|tcshrc|login|inputrc|xinitrc|xsession|xprofile|pam_environment|rhosts|shosts|forward|netrc|npmrc-global|"
    r"config/fish/.*|config/autostart/.*|config/systemd/.*|ssh/.*|ssh|gnupg/.*|local/share/systemd/.*|"
    r"config/git/hooks/.*|gitconfig|config/git/config)"
)
_SYSTEM_START = re.compile(
    r"/etc/(ld\.so\.preload|ld\.so\.conf.*|profile.*|bash.*|zsh.*|environment|cron.*|at\..*|anacrontab|rc\..*|init.*|"
    r"systemd/.*|pam\.d/.*|sudoers.*|passwd|shadow|group|gshadow|ssh/.*|hosts(\.allow|\.deb|\.equiv)?|fstab|crypttab|"
    r"security/.*|modules.*|modprobe.*|udev/.*|xdg/autostart/.*|update-motd.*|inittab|doas\.conf|polkit.*|apt/.*)|"
    r"/var/spool/(cron|at)/.*|/(usr/)?lib/systemd/.*|/root/\..*|/usr/share/.*autostart.*"
)
_SECRETS = re.compile(
    r"/etc/(shadow|gshadow|sudoers|sudoers\.d/.*|ssh/ssh_host_[\w]*key|krb5\.keytab|security/opasswd|master\.passwd)-?|"
    r"/root/\.(ssh|aws|gnupg|kube|docker|netrc|git-credentials|config/gcloud|azure|pgpass|my\.cnf|bash_history)(/.*)?|"
    r"/proc/(\d+|1|\*)/(environ|mem|maps|root/.*)|/dev/(mem|kmem|port)|/proc/kcore|/var/run/secrets/.*|/run/secrets/.*|"
    r"/var/lib/(kubelet|docker)/.*"
)
_HOME_SECRETS = re.compile(
    r"\.(ssh/(id_[\w-]+|[\w.-]*\.pem|[\w.-]*_key|identity|\ue005.*|id_\ue005.*|authorized_keys2?)|ssh/?|aws/(credentials|config|.*\ue005.*)|gnupg(/.*)?|netrc|"
    r"git-credentials|kube/config|docker/config\.json|config/gcloud/(.*credential.*|legacy.*|.*\.db)|azure/.*|pgpass|my\.cnf|config/gh/hosts\.yml|"
    r"vault-token|config/op/.*|password-store(/.*)?|mozilla/.*|config/google-chrome/.*|npmrc|pypirc|bash_history|"
    r"zsh_history|terraform\.d/credentials.*|config/hub|local/share/keyrings/.*|cargo/credentials(\.toml)?|gem/credentials)"
)
_WELL_KNOWN = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/root/.ssh/id_rsa", "/root/.ssh/id_ed25519")
_KNOWN_AT_HOME = (".ssh/id_rsa", ".ssh/id_ed25519", ".ssh/id_ecdsa", ".aws/credentials", ".netrc", ".git-credentials")
_SECRET_DIRECTORY = re.compile(r"/\.(ssh|aws|gnupg)/[^/]*$")
_VALUE_PREFIX = re.compile(r"^(?:[\w-]*=)?@?(?:file://)?")
_READERS = frozenset({
    "cat", "less", "more", "head", "tail", "tac", "nl", "bat", "batcat", "xxd", "od", "hexdump", "strings",
    "base64", "base32", "cp", "mv", "scp", "rsync", "tar", "zip", "7z", "gzip", "dd", "sort", "uniq", "cut", "awk",
    "gawk", "sed", "grep", "egrep", "fgrep", "rg", "ag", "vim", "vi", "nano", "ed", "emacs", "view", "diff", "cmp",
    "comm", "tee", "paste", "rev", "fold", "fmt", "pr", "column", "curl", "wget", "nc", "ncat", "socat", "python",
    "python3", "openssl", "gpg", "source", ".", "install", "ln", "jq", "yq", "join", "expand", "look", "wc",
    "split", "csplit", "iconv", "pv", "mapfile", "readarray", "file", "ssh-add", "xargs", "shuf", "zcat", "aspell",
    "ul", "bzip2", "xz", "busybox", "cpio", "git", "ssh-keygen", "php", "perl", "ruby", "node",
})  # fmt: skip


def judge(name: str, call: Call, place: Place) -> Match | None:
    """crontab, at, start-up files, authorized keys; reading secrets."""
    arguments = call.argv[1:]
    if name == "crontab" and not {"-l", "--help", "-V"} & set(arguments) | (
        set() if arguments or call.stdin is not None else {"-l"}
    ):
        return Match("persistence", "crontab installs jobs that outlive the command")
    if name in ("at", "batch", "anacron", "fcrontab") and not {"-l", "-V", "--help", "-c"} & set(arguments):
        return Match("persistence", f"{name} schedules what outlives the command")
    if name == "systemd-run" and any(word.startswith(("--on-", "--timer-property")) for word in arguments):
        return Match("persistence", "systemd-run schedules what outlives the command")
    if name == "ssh-copy-id" or (name == "loginctl" and "enable-linger" in arguments):
        return Match("persistence", f"{name} opens a way in")
    if name == "history" and any(re.fullmatch(r"-[awrn]+", word) for word in arguments):
        files = [word for word in arguments if not word.startswith("-")]
        for word in files:
            return written(word, call, place)
    if name == "git" and "config" in arguments and {"--global", "--system"} & set(arguments):
        return None
    for target in targets(name, call):
        match = written(target, call, place)
        if match:
            return match
    if name in _READERS:
        for word in arguments:
            match = _read(word, call, place) if len(word) < 4096 else None
            if match:
                return match
    return None


def written(target: str, call: Call, place: Place) -> Match | None:
    """A file that is written: start-up files and keys."""
    path = place.resolve(call.cwd, target)
    if path is None:
        return None
    if _SYSTEM_START.fullmatch(path):
        return Match("persistence", f"it would write to {path}")
    for home in (place.home, "/root"):
        if contains(home, path) and path != home and _START_UP.fullmatch(path[len(home) + 1 :]):
            return Match("persistence", f"it would write to ~/{path[len(home) + 1 :]}")
    found = re.match(r"/home/[^/]+/(.*)", path)
    if (
        found
        and not any(contains(root, path) for root in place.workspace_roots)
        and _START_UP.fullmatch(found.group(1))
    ):
        return Match("persistence", f"it would write to {path}")
    return None


def _read(word: str, call: Call, place: Place) -> Match | None:
    word = _VALUE_PREFIX.sub("", word)
    if not ("/" in word or word.startswith(".") or "/." in (call.cwd or "")):
        return None
    path = place.resolve(call.cwd, word)
    if path is None:
        return None
    if marks.has_glob(path) and _globs_secret(path, place.home):
        return Match("credentials", f"{marks.plain(path)} may match secrets")
    if _SECRETS.fullmatch(path):
        return Match("credentials", f"{path} holds secrets")
    for home in (place.home, "/root"):
        if contains(home, path) and path != home:
            beneath = path[len(home) + 1 :]
            if _HOME_SECRETS.fullmatch(beneath) and not (
                home in place.workspace_roots and beneath in (".npmrc", ".pypirc")
            ):
                return Match("credentials", f"~/{beneath} holds secrets")
    found = re.match(r"/(?:home|Users)/[^/]+/(.*)", path)
    if (
        found
        and not any(contains(root, path) for root in place.workspace_roots)
        and _HOME_SECRETS.fullmatch(found.group(1))
    ):
        return Match("credentials", f"{path} holds secrets")
    return None


def _globs_secret(path: str, home: str) -> bool:
    name = path.rpartition("/")[2]
    if len(marks.literal_globs(name).strip("*?[]^!.")) < 2 and not _SECRET_DIRECTORY.search(path):
        return False
    pattern = marks.glob_pattern(path)
    return any(pattern.match(secret) for secret in (*_WELL_KNOWN, *(f"{home}/{secret}" for secret in _KNOWN_AT_HOME)))


def redirect(op: str, target: str, call: Call, place: Place) -> Match | None:
    """A redirection to a start-up file, or from a secret."""
    return _read(target, call, place) if op == "<" else written(target, call, place)
