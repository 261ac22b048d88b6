"""`holdfast serve` with a certificate: HTTPS on the port, a renewal under open streams, and what an operator sees."""

import asyncio
import json
import shutil
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from websockets.asyncio.client import ClientConnection, connect

from tests.e2e.test_cli import Shell, here
from tests.requirements import requirement
from tests.support.certificates import Authority, split
from tests.support.ports import free_port
from tests.support.server import Server, StartFailed, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, Upstream, answer
from tests.support.waiting import LONG

SCRIPTED = {"name": "scripted", "dialect": "scripted"}
NAME = "127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class Certificate:
    """The files of a server's certificate, as certbot renews them: links that lead to newer files."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._authority = authority
        self.cert, self.key = folder / "fullchain.pem", folder / "privkey.pem"
        self._next: Path | None = None
        self.renew()

    def renew(self) -> None:
        cert, key = split(self._authority.issue(NAME, days=90))
        key.chmod(0o600)
        self.lead(self.cert, cert)
        self.lead(self.key, key)

    def renew_half(self) -> Callable[[], None]:
        """Replace the certificate alone. The returned function replaces the key."""
        cert, key = split(self._authority.issue(NAME, days=90))
        key.chmod(0o600)
        self.lead(self.cert, cert)
        return lambda: self.lead(self.key, key)

    def lead(self, link: Path, to: Path) -> None:
        new = link.with_suffix(".new")
        new.symlink_to(to)
        new.replace(link)

    @property
    def serial(self) -> int:
        return x509.load_pem_x509_certificate(self.cert.read_bytes()).serial_number

    @property
    def settings(self) -> dict[str, str]:
        return {"HOLDFAST_TLS_CERT": str(self.cert), "HOLDFAST_TLS_KEY": str(self.key)}


@pytest.fixture
def certificate(authority, tmp_path) -> Certificate:
    return Certificate(authority, tmp_path / "certificates")


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.path))


async def shown(server: Server, authority: Authority) -> int:
    """Return the serial number of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection(NAME, server.port, ssl=trusting(authority))
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(found).serial_number
    finally:
        writer.close()


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LONG):
        while not await is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@asynccontextmanager
async def https(server: Server, authority: Authority, **headers: str):
    url, verify = f"https://{NAME}:{server.port}", trusting(authority)
    async with httpx2.AsyncClient(
        base_url=url, verify=verify, headers=headers, timeout=LONG, trust_env=False
    ) as client:
        yield client


async def until_completed(socket: ClientConnection) -> AsyncIterator[str | bytes]:
    async for message in socket:
        yield message
        if json.loads(message)["type"] in ("response.completed", "error"):
            return


CHAT: dict[str, Any] = {"model": "up/m", "messages": [{"role": "user", "content": "?"}], "stream": True}


@requirement("start.tls")
async def test_the_port_speaks_https_and_the_commands_of_the_user_need_no_certificate(authority, certificate, tmp_path):
    """Commands use the socket in the data folder, where the file system keeps others out."""
    async with Upstream(answer("42")) as up:
        async with Server(tmp_path / "data", [provider(up.base_url)], env=certificate.settings, nodes=1) as server:
            async with https(server, authority) as client:
                health = await client.get("/health")
                streamed = await client.post("/v1/chat/completions", json=CHAT)
                page = await client.get("/")
            shell = Shell(tmp_path, {**here(server), **certificate.settings, "COLUMNS": "500"})
            listed, doctor = await shell("models"), await shell("doctor")
            async with connect(
                f"wss://{NAME}:{server.port}/v1/responses", ssl=trusting(authority), proxy=None
            ) as socket:
                await socket.send(json.dumps({"type": "response.create", "model": "up/m", "input": "?"}))
                async with asyncio.timeout(LONG):
                    kinds = [json.loads(message)["type"] async for message in until_completed(socket)]
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection("localhost", server.port, ssl=trusting(authority))
            log = server.log_text()

    assert f"Holdfast is ready on https://{NAME}:{server.port}" in log
    assert (200, 200, 200) == (health.status_code, streamed.status_code, page.status_code)
    assert "42" in streamed.text
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert (0, True) == (listed.code, "up/m" in listed.out)
    assert f"ok    Holdfast is running on https://{NAME}:{server.port}" in doctor.out
    assert "response.completed" == kinds[-1]
    assert "strict-transport-security" not in health.headers  # it would hold for all ports of localhost


@requirement("start.tls")
async def test_a_certificate_is_renewed_in_the_middle_of_a_stream(authority, certificate, tmp_path):
    """The stream stays, without a word lost, and the next connection is shown the new certificate."""
    script = [Headers(), Role(), Delta("one "), Gate(), Delta("two"), Finish(), Done()]
    async with Upstream(script) as up:
        async with Server(tmp_path / "data", [provider(up.base_url)], env=certificate.settings, nodes=1) as server:
            before = await shown(server, authority)
            first = certificate.serial
            async with (
                https(server, authority) as client,
                client.stream("POST", "/v1/chat/completions", json=CHAT) as s,
            ):
                lines = s.aiter_lines()
                read = [await anext(lines) for _ in range(3)]
                certificate.renew()
                await until(lambda: is_shown(server, authority, certificate.serial))
                up.open()
                read += [line async for line in lines]
            log = server.log_text()

    assert first == before
    assert ['"one "', '"two"'] == [word for word in ('"one "', '"two"') if word in "".join(read)]
    assert "data: [DONE]" in read
    assert "was renewed" in log


async def is_shown(server: Server, authority: Authority, serial: int) -> bool:
    return serial == await shown(server, authority)


@requirement("start.tls")
async def test_half_of_a_renewal_is_not_used(authority, certificate, tmp_path):
    """The certificate and its key are two files, and one of them is replaced first."""
    async with Server(tmp_path / "data", [SCRIPTED], env=certificate.settings, nodes=1) as server:
        first = certificate.serial
        complete = certificate.renew_half()
        await until(lambda: _logged(server, "the changed certificate is not used"))
        meanwhile = await shown(server, authority)
        complete()
        await until(lambda: is_shown(server, authority, certificate.serial))
        async with https(server, authority) as client:
            ready = (await client.get("/ready")).status_code

    assert first == meanwhile
    assert 200 == ready
    assert 1 == server.log_text().count("is not used")


async def _logged(server: Server, text: str) -> bool:
    return text in server.log_text()


def no_file(files: Certificate, authority: Authority) -> None:
    files.key.unlink()


def other_key(files: Certificate, authority: Authority) -> None:
    files.lead(files.key, split(authority.issue(NAME))[1])


def secret_key(files: Certificate, authority: Authority) -> None:
    files.lead(files.key, authority.issue(NAME, password=b"secret"))


def no_certificate(files: Certificate, authority: Authority) -> None:
    files.cert.unlink()
    files.cert.write_text("something else")


@requirement("start.tls")
@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (no_file, "privkey.pem (`tls_key`) cannot be read: No such file"),
        (other_key, "does not belong to the certificate"),
        (secret_key, "has a password"),
        (no_certificate, "must have a certificate"),
    ],
)
async def test_a_certificate_that_cannot_be_used_stops_the_start(authority, certificate, tmp_path, spoil, problem):
    """With what is wrong, in one line."""
    spoil(certificate, authority)
    with pytest.raises(StartFailed) as refused:
        async with Server(tmp_path / "data", [SCRIPTED], env=certificate.settings, nodes=1):
            pass

    assert problem in str(refused.value)
    assert "Traceback" not in str(refused.value)


@requirement("start.tls")
async def test_a_certificate_that_cannot_be_used_is_found_before_the_start(authority, certificate, tmp_path):
    """By the commands that look for problems."""
    other_key(certificate, authority)
    shell = Shell(tmp_path, {**certificate.settings, "HOLDFAST_PORT": str(free_port()), "COLUMNS": "500"})
    checked, doctor = await shell("config", "check"), await shell("doctor")

    assert "does not belong to the certificate" in checked.err
    assert "does not belong to the certificate" in doctor.out


@requirement("start.tls")
async def test_a_key_without_a_certificate_is_refused(tmp_path):
    """The server would otherwise start without TLS, against what was wanted."""
    checked = await Shell(tmp_path, {"HOLDFAST_TLS_KEY": "key.pem"})("config", "check")

    assert (1, True) == (checked.code, "needs `tls_cert`" in checked.err)


@requirement("start.tls")
async def test_the_doctor_tells_of_the_last_two_weeks_and_of_an_exposed_key(authority, tmp_path):
    """And so does the log at the start: no one looks at a certificate before it has expired."""
    port = str(free_port())

    async def doctor(path: Path) -> str:
        env = {"HOLDFAST_TLS_CERT": str(path), "HOLDFAST_PORT": port, "COLUMNS": "500"}
        return (await Shell(tmp_path, env)("doctor")).out

    files = {name: tmp_path / f"{name}.pem" for name in ("long", "soon", "over", "open")}
    shutil.copy(authority.issue(NAME, days=15), files["long"])
    shutil.copy(authority.issue(NAME, days=13), files["soon"])
    shutil.copy(authority.issue(NAME, expired=True), files["over"])
    shutil.copy(files["long"], files["open"])
    for name, path in files.items():
        path.chmod(0o644 if name == "open" else 0o600)
    told = {name: await doctor(path) for name, path in files.items()}
    async with Server(tmp_path / "data", [SCRIPTED], env={"HOLDFAST_TLS_CERT": str(files["soon"])}, nodes=1) as server:
        log = server.log_text()

    assert f"ok    certificate {files['long']}, valid until" in told["long"]
    assert f"note  the certificate {files['soon']} expires on" in told["soon"]
    assert f"bad   the certificate {files['over']} has expired" in told["over"]
    assert "every user of this machine can read or change the private key" in told["open"]
    assert "every user" not in told["long"]
    assert f"the certificate {files['soon']} expires on" in log


@requirement("start.tls")
async def test_beyond_loopback_browsers_are_told_to_use_https_and_plain_http_is_warned_of(
    authority, certificate, tmp_path
):
    """One line at the start of a server that others can listen in on, and none of one with TLS."""
    env = {"HOLDFAST_API_KEY": "k" * 32, "HOLDFAST_HOST": "0.0.0.0"}
    async with Server(tmp_path / "one", [SCRIPTED], env=env, nodes=1) as plain:
        warned = plain.log_text()
    async with Server(tmp_path / "two", [SCRIPTED], env=env | certificate.settings, nodes=1) as server:
        async with https(server, authority, authorization=f"Bearer {'k' * 32}") as client:
            answers = [await client.get(path) for path in ("/health", "/", "/api/sessions", "/nothing")]
            refused = await client.get("/api/sessions", headers={"authorization": "Bearer wrong"})
        silent = server.log_text()

    assert 1 == warned.count("without TLS")
    assert "without TLS" not in silent
    assert {"max-age=31536000"} == {one.headers.get("strict-transport-security") for one in (*answers, refused)}


def only_tls_1_1(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


@requirement("start.tls")
async def test_old_versions_of_tls_and_plain_http_are_refused(authority, certificate, tmp_path):
    """TLS 1.2 is the oldest that has no known weakness."""
    old = only_tls_1_1(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    old.load_verify_locations(authority.path)
    other = await asyncio.start_server(
        lambda _, writer: writer.close(), NAME, 0, ssl=only_tls_1_1(authority.server_context(NAME))
    )
    twelve = trusting(authority)
    twelve.maximum_version = ssl.TLSVersion.TLSv1_2
    async with Server(tmp_path / "data", [SCRIPTED], env=certificate.settings, nodes=1) as server:
        _, able = await asyncio.open_connection(NAME, other.sockets[0].getsockname()[1], ssl=old)
        able.close()
        other.close()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(NAME, server.port, ssl=old)
        _, accepted = await asyncio.open_connection(NAME, server.port, ssl=twelve)
        version = accepted.get_extra_info("ssl_object").version()
        accepted.close()
        reader, writer = await asyncio.open_connection(NAME, server.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(LONG):
            plain = await reader.read()
        writer.close()

    assert "TLSv1.2" == version
    assert b"HTTP" not in plain


@requirement("start.tls", "safe.one-request")
async def test_what_is_no_request_is_refused_over_tls_too(authority, certificate, tmp_path):
    """A connection with TLS has no half that can be closed."""
    async with Server(tmp_path / "data", [SCRIPTED], env=certificate.settings, nodes=1) as server:
        reader, writer = await asyncio.open_connection(NAME, server.port, ssl=trusting(authority))
        writer.write(b"nonsense\r\n\r\n")
        async with asyncio.timeout(LONG):
            said = await reader.readuntil(b"\r\n\r\n")
        writer.close()

    assert said.startswith(b"HTTP/1.1 400 ")
    assert "Traceback" not in server.log_text()


@requirement("start.tls", "nodes.serve")
async def test_several_nodes_serve_https_and_all_of_them_renew(authority, certificate, postgres, tmp_path):
    """Each process looks at the files by itself."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database()), **certificate.settings}
    port = free_port(3)
    async with Server(tmp_path / "data", [SCRIPTED], env=env, args=["--nodes", "2"], port=port) as server:
        first = {await shown(server, authority) for _ in range(8)}
        before = certificate.serial
        certificate.renew()

        async def all_new() -> bool:
            return {certificate.serial} == {await shown(server, authority) for _ in range(16)}

        await until(all_new)
        log = server.log_text()

    assert {before} == first
    assert f"https://{NAME}:{port}, by 2 nodes" in log


@requirement("start.tls")
async def test_a_sign_in_over_https_gets_a_cookie_that_is_sent_over_https_only(authority, certificate, tmp_path):
    """No setting is needed for that: the server has seen TLS itself."""
    password = "a long sentence about nothing"
    async with Server(tmp_path / "data", [SCRIPTED], env=certificate.settings, nodes=1) as server:
        shell = Shell(tmp_path, {**here(server), **certificate.settings, "HOLDFAST_CONFIG": str(server.config)})
        made = await shell("user", "new", "ada", "--password-stdin", stdin=f"{password}\n")
        linked = await shell("user", "reset", "ada")
        async with https(server, authority) as client:
            headers = {"origin": f"https://{NAME}:{server.port}"}
            signed_in = await client.post("/api/sign-in", json={"name": "ada", "password": password}, headers=headers)

    assert (0, 0) == (made.code, linked.code), made.err + linked.err
    assert linked.out.startswith(f"https://{NAME}:{server.port}/reset#")
    assert 200 == signed_in.status_code, signed_in.text
    assert "; Secure" in signed_in.headers["set-cookie"]
