"""Who asks, and what they may do: by a token, by a trusted proxy's word, or nobody in particular."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

ROLES = ("viewer", "operator", "approver")
"""`viewer` looks, `operator` also cancels calls, `approver` also judges plans. One person may have several."""

_TOKEN_BYTES = 32


class Person(Struct, frozen=True):
    """Whoever made a request."""

    name: str
    roles: frozenset[str]

    def may(self, role: str) -> bool:
        """Whether they have the role. Everybody who has any may look."""
        return role in self.roles or (role == "viewer" and bool(self.roles))


NOBODY = Person("", frozenset())
ANONYMOUS = Person("anonymous", frozenset({"viewer"}))


class PeopleError(ValueError):
    """A file of tokens, a network or a role that can't be used; the message says where."""


class Proxy(Struct, frozen=True):
    """Peers whose headers are believed. The role header holds roles, separated by commas; others in it are ignored."""

    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    user_header: str = "x-forwarded-user"
    role_header: str = "x-forwarded-roles"

    def trusts(self, peer: str) -> bool:
        """Whether the peer's address is one of the proxy's."""
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self.networks)


class People:
    """Tells persons by requests. `tokens` maps the SHA-256 of a token to its person."""

    def __init__(self, tokens: Mapping[str, Person], proxy: Proxy, *, anonymous: bool) -> None:
        self._tokens, self._proxy, self._anonymous = dict(tokens), proxy, anonymous

    @property
    def can_sign_in(self) -> bool:
        """Whether there are tokens at all."""
        return bool(self._tokens)

    def who(self, headers: Mapping[str, str], peer: str) -> Person:
        """The person behind a request. A wrong token makes nobody of them, whatever else would hold."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme:
            if scheme.lower() != "bearer":
                return NOBODY
            return self._tokens.get(hash_of(token.strip()), NOBODY)
        if self._proxy.trusts(peer):
            name = headers.get(self._proxy.user_header, "").strip()
            named = {role.strip() for role in headers.get(self._proxy.role_header, "").split(",")}
            if name and named.intersection(ROLES):
                return Person(name[:64], frozenset(named.intersection(ROLES)))
        return ANONYMOUS if self._anonymous else NOBODY


def hash_of(token: str) -> str:
    """What a file of tokens holds instead of the token."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_tokens(file: Path) -> dict[str, Person]:
    """A file of lines `name roles sha256`, roles separated by commas. Empty lines and lines from `#` are skipped.

    Raises:
        PeopleError: a line has another form, or an unknown role.
        OSError: the file can't be read.
    """
    people: dict[str, Person] = {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or len(words[2]) != 64 or not set(words[2]) <= set("0123456789abcdef"):
            raise PeopleError(f"{file}: line {number} is not `name roles sha256`")
        people[words[2]] = Person(words[0][:64], read_roles(words[1]))
    return people


def read_roles(text: str) -> frozenset[str]:
    """Roles separated by commas.

    Raises:
        PeopleError: there is no such role.
    """
    roles = frozenset(text.split(","))
    if not roles <= set(ROLES):
        raise PeopleError(f"no such role: {', '.join(sorted(roles - set(ROLES)))}; there are {', '.join(ROLES)}")
    return roles


def read_networks(texts: Sequence[str]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Networks from CIDR notation or single addresses.

    Raises:
        PeopleError: one is none.
    """
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise PeopleError(f"trusted proxy: {error}") from None


def add_token(file: Path, name: str, roles: str) -> str:
    """Makes a token and adds its hash to the file, which is made for its owner alone. The token, to be shown once.

    Raises:
        PeopleError: the name or a role can't be used.
        OSError: the file can't be written.
    """
    if not name or len(name) > 64 or any(letter.isspace() for letter in name) or name.startswith("#"):
        raise PeopleError("a name has 1 to 64 letters, without spaces")
    read_roles(roles)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(descriptor, "a") as out:
        out.write(f"{name} {roles} {hash_of(token)}\n")
    return token
