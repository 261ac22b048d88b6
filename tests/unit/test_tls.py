"""Own CAs and client certificates: whom TLS trusts, what it shows, and what an operator is told."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.http_client.errors import Broken, NotThere, why_tls_ended
from holdfast.http_client.pool import Connections
from holdfast.http_client.request import head_of
from holdfast.http_client.route import Route, route_to
from tests.requirements import requirement
from tests.support.certificates import Authority, split


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"), "Another CA")


@pytest.fixture(scope="module")
def client_files(authority: Authority) -> tuple[Path, ...]:
    """A certificate with its key, and the same in two files."""
    one = authority.issue("holdfast.test")
    return one, *split(one)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.readuntil(b"\r\n\r\n")
        shown = writer.get_extra_info("peercert") or {}
        name = dict(pair for names in shown.get("subject", ()) for pair in names).get("commonName", "nobody")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(name), name.encode()))
        await reader.read()
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


@asynccontextmanager
async def served(context: ssl.SSLContext) -> AsyncIterator[str]:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def ask(url: str, route: Route) -> bytes:
    connections = Connections(url, route=route, connect_timeout=30)
    try:
        return await (await connections.send(head_of("GET", url, {}))).read_all()
    finally:
        connections.close()


@requirement("start.own-tls")
async def test_an_upstream_of_an_own_ca_is_reached_with_ca_file(authority):
    """A company's gateway, or a model server with a certificate that the company signed."""
    async with served(authority.server_context("127.0.0.1")) as url:
        assert b"nobody" == await ask(url, route_to(url, ca_file=str(authority.path), environ={}))


@requirement("start.own-tls")
async def test_ssl_cert_file_is_honoured(authority):
    """The variable that other programs of the machine use."""
    async with served(authority.server_context("127.0.0.1")) as url:
        assert b"nobody" == await ask(url, route_to(url, environ={"SSL_CERT_FILE": str(authority.path)}))


@requirement("start.own-tls")
async def test_an_unknown_ca_is_refused_and_the_setting_is_named(authority):
    """Nobody should have to look up what the words of OpenSSL mean."""
    async with served(authority.server_context("127.0.0.1")) as url:
        with pytest.raises(NotThere, match=r"certificate is not trusted \(.*\): set ca_file") as refused:
            await ask(url, route_to(url, environ={}))

    assert isinstance(refused.value.__cause__, ssl.SSLCertVerificationError)


@requirement("start.own-tls")
async def test_ca_file_is_the_only_authority(authority, other):
    """Another CA, be it the system's, cannot vouch for an upstream that has one of its own."""
    async with served(other.server_context("127.0.0.1")) as url:
        route = route_to(url, ca_file=str(authority.path), environ={"SSL_CERT_FILE": str(other.path)})
        with pytest.raises(NotThere, match="certificate is not trusted"):
            await ask(url, route)


@requirement("start.own-tls")
async def test_a_wrong_name_and_an_expired_certificate_are_told_apart(authority):
    """A CA file would help against neither."""
    expired = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    expired.load_cert_chain(authority.issue("127.0.0.1", expired=True))
    for context, advice in [
        (authority.server_context("other.test"), "the address must have the name that the certificate is for"),
        (expired, "its operator has to renew it"),
    ]:
        async with served(context) as url:
            with pytest.raises(NotThere, match=advice):
                await ask(url, route_to(url, ca_file=str(authority.path), environ={}))


async def mutual(authority: Authority, one: Path, certificate: Path, key: Path) -> None:
    """Show a certificate, in one file or two."""
    async with served(authority.server_context("127.0.0.1", wants_client=True)) as url:
        ca_file = str(authority.path)
        whole = route_to(url, ca_file=ca_file, cert=str(one), environ={})
        halves = route_to(url, ca_file=ca_file, cert=str(certificate), cert_key=str(key), environ={})
        assert [b"holdfast.test"] * 2 == [await ask(url, whole), await ask(url, halves)]
        with pytest.raises((NotThere, Broken)) as refused:
            await ask(url, route_to(url, ca_file=ca_file, environ={}))

    cause = refused.value.__cause__
    if isinstance(cause, ssl.SSLError):  # a reset may overtake the alert
        assert "it requires a client certificate: set cert" in why_tls_ended(cause)


@requirement("start.own-tls")
async def test_a_client_certificate_is_shown(authority, client_files):
    """With TLS 1.3 a missing one is told only after the request was written."""
    await mutual(authority, *client_files)


@requirement("start.own-tls")
def test_a_client_certificate_is_shown_on_uvloop(authority, client_files):
    """The server's loop."""
    pytest.importorskip("uvloop").run(mutual(authority, *client_files))


def files(authority: Authority, folder: Path) -> dict[str, str]:
    sound, another = split(authority.issue("a.test")), split(authority.issue("b.test"))
    (folder / "text.pem").write_text("not a certificate")
    return {
        "ca": str(authority.path),
        "gone": str(folder / "gone.pem"),
        "folder": str(folder),
        "text": str(folder / "text.pem"),
        "cert": str(sound[0]),
        "key": str(sound[1]),
        "other key": str(another[1]),
        "locked": str(authority.issue("c.test", password=b"secret")),
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ca_file": "gone"}, "ca_file .*gone.pem cannot be read: no such file or directory"),
        ({"ca_file": "text"}, "ca_file .*text.pem holds no certificate in PEM form"),
        ({"ca_file": "folder"}, "ca_file .* (cannot be read|holds no certificate)"),
        ({"ca_file": "key"}, "ca_file .* holds no certificate in PEM form"),
        ({"cert": "gone"}, "cert .*gone.pem cannot be read: no such file or directory"),
        ({"cert": "folder"}, "cert .* cannot be read: is a directory"),
        ({"cert": "text"}, "must hold a certificate and its private key in PEM form"),
        ({"cert": "cert"}, "must hold a certificate and its private key in PEM form"),
        ({"cert": "cert", "cert_key": "gone"}, "cert_key .*gone.pem cannot be read"),
        ({"cert": "cert", "cert_key": "other key"}, "the private key is not the one of the certificate"),
        ({"cert": "locked"}, "its private key is encrypted"),
        ({"cert_key": "key"}, "cert_key is set without cert"),
    ],
)
@requirement("start.own-tls")
def test_a_file_that_cannot_be_used_is_refused_in_words(authority, tmp_path, given, said):
    """At the start, and not with the first request of somebody. OpenSSL never asks for a password on the terminal."""
    known = files(authority, tmp_path)
    with pytest.raises(ValueError, match=said):
        route_to("https://up.test", **{name: known[file] for name, file in given.items()}, environ={})


@requirement("start.own-tls")
def test_files_for_tls_need_an_address_with_tls(authority):
    """Somebody who set them expects encryption."""
    with pytest.raises(ValueError, match="need a base_url that begins with https"):
        route_to("http://up.test", ca_file=str(authority.path), environ={})


@requirement("start.own-tls")
def test_a_wrong_ssl_cert_file_is_refused(tmp_path):
    """OpenSSL itself would ignore it, and trust what it should not or nothing at all."""
    with pytest.raises(ValueError, match=r"SSL_CERT_FILE .*gone\.pem cannot be read"):
        route_to("https://up.test", environ={"SSL_CERT_FILE": str(tmp_path / "gone.pem")})
