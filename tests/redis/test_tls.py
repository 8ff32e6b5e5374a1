"""Redis by TLS: its certificate, host name and authority are checked, and ours is shown where it is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from contracts.connection import UNREACHABLE, connect
from tests.fleet import Agent, Fleet, Server, serve
from tests.redis.servers import FollowingFleet, free_port
from worker.server_binary import locate_server
from worker.settings import SettingsError, read_settings


class Authority:
    """A certificate authority of its own, and what it has signed, as PEM files in a directory."""

    def __init__(self, home: Path, name: str) -> None:
        self.home, self._name = home, name
        home.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(name, self._key, ())
        self.file = self._write("ca.pem", self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """A certificate for the hosts, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._sign(name, key, hosts)
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return (
            self._write(f"{name}.pem", made.public_bytes(serialization.Encoding.PEM)),
            self._write(f"{name}.key", key.private_bytes(*pem)),
        )

    def _sign(self, name: str, key: ec.EllipticCurvePrivateKey, hosts: tuple[str, ...]) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        ours = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(ours)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
        )
        if hosts:
            names = [_general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, data: bytes) -> Path:
        path = self.home / name
        path.write_bytes(data)
        return path


def _general_name(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


class TlsDoor:
    """Takes TLS connections on a port and hands them to a server's Unix socket. Wants a certificate of its callers."""

    def __init__(self, target: Path, certificate: tuple[Path, Path], callers: Path) -> None:
        self.port = free_port()
        self._target = target
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(callers))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(*map(str, certificate))
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._open = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._open.wait(10)

    async def _serve(self) -> None:
        self._loop.set_exception_handler(lambda *_: None)
        server = await asyncio.start_server(self._take, "127.0.0.1", self.port, ssl=self._context)
        self._open.set()
        await self._stop.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_unix_connection(str(self._target))
        try:
            await asyncio.gather(_pump(reader, outer), _pump(inner, writer))
        finally:
            outer.close()
            writer.close()

    def close(self) -> None:
        """Ends it and every connection."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours", "our authority")


@pytest.fixture(scope="module")
def caller(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("caller", "caller")


DOORS = ["door", *(["server"] if b"libssl" in locate_server().read_bytes() else [])]
"""The server that comes in a wheel has no TLS, so a door stands before it; a system's server mostly has its own."""


@pytest.fixture(scope="module", params=DOORS)
def tls_port(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, Server]]:
    certificate = authority.issue("server", "localhost")
    home = tmp_path_factory.mktemp("server")
    if request.param == "door":
        with serve(home) as server:
            door = TlsDoor(server.socket, certificate, authority.file)
            yield door.port, server
            door.close()
        return
    port = free_port()
    files = (str(certificate[0]), str(certificate[1]), str(authority.file))
    names = ("--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file")
    options = [word for pair in zip(names, files, strict=True) for word in pair]
    with serve(home, "--tls-port", str(port), "--tls-auth-clients", "yes", *options) as server:
        yield port, server


def test_calls_go_by_tls_with_certificates_from_the_settings(
    tls_port: tuple[int, Server], authority: Authority, caller: tuple[Path, Path], tmp_path: Path
) -> None:
    port, server = tls_port
    (tmp_path / "url").write_text(f"rediss://localhost:{port}/0\n")
    settings = {
        "redis_url_file": tmp_path / "url",
        "redis_ca": authority.file,
        "redis_cert": caller[0],
        "redis_key": caller[1],
    }
    fleet: Fleet = FileUrlFleet(redis.Redis.from_url(server.url), "", tmp_path, "q", **settings)
    try:
        fleet.start_worker()
        done = fleet.run("call", "run_command", "command=echo hello", "--session", "s")
        assert (done.returncode, done.stderr) == (0, b"")
        query = f"ssl_ca_certs={authority.file}&ssl_certfile={caller[0]}&ssl_keyfile={caller[1]}"
        fleet.url = f"rediss://localhost:{port}?{query}"
        assert Agent(fleet, "s").complete("run_command", command="echo hello")["stdout"] == "hello\n"
    finally:
        fleet.end()


class FileUrlFleet(FollowingFleet):
    """Its processes have no REDIS_URL."""

    @property
    def env(self) -> dict[str, str]:
        return {name: value for name, value in super().env.items() if name != "REDIS_URL"}


def reach(url: str) -> Any:
    """PING's answer, or what came instead."""

    async def act() -> Any:
        client: Any = connect(url)
        try:
            return await client.ping()
        except UNREACHABLE as error:
            return str(error)
        finally:
            await client.aclose()

    return asyncio.run(act())


def test_whoever_can_not_prove_who_he_is_is_refused(
    tls_port: tuple[int, Server], authority: Authority, caller: tuple[Path, Path], tmp_path: Path
) -> None:
    port, _ = tls_port
    ours = f"ssl_certfile={caller[0]}&ssl_keyfile={caller[1]}"
    trusted = f"{ours}&ssl_ca_certs={authority.file}"
    stranger = Authority(tmp_path / "other", "another authority")
    assert reach(f"rediss://localhost:{port}?{trusted}") is True
    assert "not valid for '127.0.0.1'" in reach(f"rediss://127.0.0.1:{port}?{trusted}")
    assert reach(f"rediss://127.0.0.1:{port}?{trusted}&ssl_check_hostname=no") is True
    assert "verify failed" in reach(f"rediss://localhost:{port}?{ours}&ssl_ca_certs={stranger.file}")
    assert "verify failed" in reach(f"rediss://localhost:{port}?{ours}")
    assert reach(f"rediss://localhost:{port}?ssl_ca_certs={authority.file}") is not True
    false = "ssl_certfile={}&ssl_keyfile={}".format(*stranger.issue("x", "x"))
    assert reach(f"rediss://localhost:{port}?{false}&ssl_ca_certs={authority.file}") is not True
    assert reach(f"redis://localhost:{port}?socket_timeout=2") is not True


def test_settings_that_would_not_protect_are_refused(authority: Authority, tmp_path: Path) -> None:
    url, empty = tmp_path / "url", tmp_path / "empty"
    url.write_text(" rediss://worker:secret@redis:6380/0 \n")
    empty.write_text("\n")
    ca = {"TOOLREEF_REDIS_CA": str(authority.file)}
    settings = read_settings({"TOOLREEF_REDIS_URL_FILE": str(url), **ca})
    assert settings.redis_url == f"rediss://worker:secret@redis:6380/0?ssl_ca_certs={authority.file}"
    assert "worker:secret" not in repr(settings) + str(settings)
    own = read_settings({"REDIS_URL": "rediss://redis?ssl_ca_certs=/other.pem", **ca})
    assert own.redis_url == "rediss://redis?ssl_ca_certs=/other.pem"
    for environ, message in (
        ({"TOOLREEF_REDIS_URL_FILE": str(url), "REDIS_URL": "redis://x"}, "which of the two counts"),
        ({"TOOLREEF_REDIS_URL_FILE": str(empty)}, "the file is empty"),
        ({"TOOLREEF_REDIS_URL_FILE": str(tmp_path / "none")}, "can't be read"),
        ({"TOOLREEF_APPROVER_URL_FILE": str(tmp_path)}, "TOOLREEF_APPROVER_URL_FILE: can't be read"),
        ({"REDIS_URL": "redis://x", **ca}, "no URL begins with rediss"),
        ({"REDIS_URL": "rediss://x", "TOOLREEF_REDIS_KEY": str(tmp_path / "none")}, "TOOLREEF_REDIS_KEY"),
    ):
        with pytest.raises(SettingsError, match=message):
            read_settings(environ)


@pytest.mark.parametrize(
    "url, message",
    [
        ("http://user:pa55@host", "the Redis URL's scheme must be"),
        ("redis://user:pa55/word@host", "the redis URL can't be read"),
        ("rediss://user:pa55@host?db=x", "Invalid value for 'db'"),
        ("redis+sentinel://user:pa55/word@host/m", "can't be read"),
        ("redis+sentinel://user:pa55@host", "names the service"),
        ("redis+cluster://user:pa55@host/3", "database 0 only"),
        ("redis+cluster://user:pa55@/", "names no hosts"),
    ],
)
def test_a_url_that_can_not_be_read_is_never_quoted(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        connect(url)
    assert "pa55" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
