"""The network as it is: compressed answers, redirects, HTTP/2, and gateways with paths and headers of their own."""

import asyncio
import gzip
import ssl
import zlib
from contextlib import asynccontextmanager

import pytest

from holdfast.errors import ProviderBroke, ProviderUnreachable
from holdfast.events import Finish
from holdfast.http_client.errors import why_tls_ended
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.server.live.provider_factory import make_provider
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.openai.provider import OpenAICompatible
from tests.contract.test_provider import listen, until
from tests.requirements import requirement
from tests.support.dialects.openai import BEGIN, end
from tests.support.dialects.openai import PLAYED as SAID
from tests.support.upstream import Eof, Gate, Headers, Raw, Status, Upstream

WHOLE = BEGIN + end()
SETTINGS_FRAME = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"
MODELS = b'{"object":"list","data":[{"id":"m"}]}'


@pytest.fixture
async def up():
    async with Upstream([Raw(WHOLE)]) as up:
        yield up


@pytest.fixture
async def provider(up):
    provider = OpenAICompatible("up", up.base_url, api_key=SAID.secret, linger=0.2)
    yield provider
    await provider.close()


def made(up, **fields):
    given = {"base_url": up.base_url, "api_key": SAID.secret} | fields
    return make_provider(ProviderSettings("up", **given), Settings(), {})


def asked(model="m"):
    return ChatRequest(model=model, messages=[{"role": "user", "content": "Hello"}], patience=0.0)


@asynccontextmanager
async def answering(data):
    """A server that answers everything with these bytes."""

    async def answer(reader, writer):
        await reader.read(65536)
        writer.write(data)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def raw_deflate(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress, "DEFLATE": raw_deflate}


# compressed


@requirement("net.compressed")
async def test_no_compression_is_asked_for(up, provider):
    """A gateway that compresses a stream holds its words back."""
    await listen(provider, asked())

    assert "identity" == up.requests[0].headers["accept-encoding"]


@requirement("net.compressed")
@pytest.mark.parametrize("encoding", PACKED)
async def test_an_answer_that_is_compressed_all_the_same_is_decompressed(up, provider, encoding):
    """Some gateways do not ask what is asked for."""
    packed = PACKED[encoding](WHOLE)
    up.enqueue(
        [Headers(headers={"Content-Encoding": encoding}), *(Raw(packed[n : n + 5]) for n in range(0, len(packed), 5))]
    )
    heard = await listen(provider, asked())

    assert (SAID.text, [Finish("stop")], None) == (heard.text, heard.all(Finish), heard.error)


@requirement("net.compressed", "truth.cut")
@pytest.mark.parametrize("broken", ["cut", "garbage"])
async def test_a_compressed_answer_that_breaks_off_is_a_failure(up, provider, broken):
    """What could be read of it is kept."""
    packer = zlib.compressobj(wbits=31)
    begun = packer.compress(BEGIN) + packer.flush(zlib.Z_SYNC_FLUSH)
    up.enqueue(
        [Headers(headers={"Content-Encoding": "gzip"}), Raw(begun + (b"" if broken == "cut" else b"\xff" * 9)), Eof()]
    )
    heard = await listen(provider, asked())

    assert isinstance(heard.error, ProviderBroke)
    assert SAID.text == heard.text


@requirement("net.compressed")
async def test_a_small_body_that_becomes_a_huge_one_is_given_up(up):
    """A gigabyte of blanks is a megabyte on the wire."""
    provider = OpenAICompatible("up", up.base_url, max_event=100_000)
    up.enqueue([Status(200, gzip.compress(b"data: " + b"x" * 50_000_000), {"Content-Encoding": "gzip"})])
    heard = await listen(provider, asked())
    await provider.close()

    assert "up sent an event of more than 100000 bytes." == str(heard.error)


@requirement("net.compressed")
async def test_one_read_that_expands_to_very_many_small_events_is_given_up(up, provider):
    """Each is short enough, but all of them are decoded in one turn of the event loop: 64 kB kept it busy for 0.4 s."""
    chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'
    up.enqueue([Status(200, gzip.compress(chunk * 300_000), {"Content-Encoding": "gzip"})])
    heard = await listen(provider, asked())

    assert "up sent a compressed answer that expands to over 4194304 bytes at once." == str(heard.error)
    assert 1 < len(heard.text) < 300_000


@requirement("net.compressed")
async def test_a_compression_that_cannot_be_read_is_named(up, provider):
    """Whoever runs the gateway has to turn it off there."""
    up.enqueue([Status(200, b"\x0b", {"Content-Encoding": "br"})])
    up.models_script = [Status(200, b"\x0b", {"Content-Encoding": "br"})]
    heard = await listen(provider, asked())

    assert "up compressed its answer with 'br', which was not asked for." == str(heard.error)
    assert [] == await provider.list_models()
    assert "compresses its list of models with 'br'" in provider.why_not()


@requirement("net.compressed")
async def test_a_compressed_list_of_models_and_a_compressed_error_are_read(up, provider):
    """An empty list without a reason would hide every model."""
    up.models_script = [Status(200, gzip.compress(MODELS), {"Content-Encoding": "gzip"})]
    told = gzip.compress(b'{"error": {"message": "Too hot."}}')
    up.enqueue([Status(400, told, {"Content-Encoding": "gzip"})])
    heard = await listen(provider, asked())

    assert "up answered 400: Too hot." == str(heard.error)
    assert ["m"] == await provider.list_models()


# redirects


@requirement("net.redirects")
async def test_a_list_of_models_is_followed_on_the_same_origin(up, provider):
    """A gateway that wants a slash at the end is no trouble."""
    up.at["GET /v1/models"] = [Status(308, "", {"Location": "/v1/models/?x=1"})]
    up.at["GET /v1/models/"] = [Status(200, MODELS)]

    assert ["m"] == await provider.list_models()
    assert provider.why_not() is None
    assert f"Bearer {SAID.secret}" == up.others[-1].headers["authorization"]


@requirement("net.redirects", "safe.secrets")
async def test_a_redirect_elsewhere_is_told_and_not_followed(up, provider):
    """The key would go to whoever the upstream names. Its path and query may hold a secret of theirs."""
    async with Upstream() as other:
        there = f"http://127.0.0.1:{other.port}"
        up.models_script = [Status(307, "", {"Location": f"{there}/v1/models?token=t0psecret"})]
        models = await provider.list_models()

        assert ([], 0) == (models, len(other.others))
        assert f"up redirects to {there} (307), which is not followed: set base_url to its new address." == (
            provider.why_not()
        )
        assert not await provider.answers()


@requirement("net.redirects")
async def test_redirects_that_lead_in_a_circle_end(up, provider):
    """A wrong rule of a gateway must not hang the list."""
    up.at["GET /v1/models"] = [Status(302, "", {"Location": "/v1/models"})]

    assert [] == await provider.list_models()
    assert "up redirects again and again." == provider.why_not()


# what failed


@requirement("net.errors")
async def test_an_upstream_that_speaks_only_http2_is_told_as_such():
    """Its bytes are no HTTP/1.1, and the reader should know what to do."""
    async with answering(SETTINGS_FRAME) as base_url:
        provider = OpenAICompatible("up", base_url)
        heard = await listen(provider, asked())
        await provider.close()

    assert "up answered with HTTP/2 alone, which is not supported: put a reverse proxy" in str(heard.error)


@requirement("net.errors")
def test_an_upstream_that_refuses_http1_in_tls_is_told_as_such():
    """Its alert is the first thing that is heard of it."""
    error = ssl.SSLError(1, "tlsv1 alert no application protocol")
    error.reason = "TLSV1_ALERT_NO_APPLICATION_PROTOCOL"

    assert why_tls_ended(error).startswith("it speaks HTTP/2 alone, which is not supported")


@requirement("net.errors")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"base_url": "http://no-such-host.invalid/v1"}, "its name could not be resolved. Check the host in base_url."),
        (
            {"base_url": "http://127.0.0.1:9/v1"},
            "connection refused. Check the address and its port.",
        ),
        ({"proxy": "http://127.0.0.1:9"}, "connection refused. Check proxy, HTTPS_PROXY and NO_PROXY."),
    ],
)
async def test_what_failed_is_said_in_the_words_of_the_settings(up, fields, words):
    """Whoever reads it can mend it."""
    provider = made(up, **fields)
    heard = await listen(provider, asked())
    await provider.close()

    assert isinstance(heard.error, ProviderUnreachable)
    assert words in str(heard.error)


@requirement("net.errors")
@pytest.mark.parametrize(
    ("response", "words"),
    [
        (Status(401, ""), "up refuses the key (401): Unauthorized. Check the API key."),
        (
            Status(403, {"error": {"message": f"Incorrect API key provided: {SAID.secret}."}}),
            "up refuses the key (403): Incorrect API key provided: [redacted]. Check the API key.",
        ),
        (
            Status(400, {"error": {"message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]}}),
            "up refuses the key (400): API key not valid. Check the API key.",
        ),
        (Status(503, {"error": {"message": "The region is down."}}), "up answered 503: The region is down."),
    ],
)
async def test_why_there_are_no_models_is_known(up, provider, response, words):
    """The page and `holdfast doctor` show it, in the upstream's own words."""
    up.models_script = [response]

    assert [] == await provider.list_models()
    assert words == provider.why_not()


async def test_an_upstream_that_is_being_asked_for_its_models_is_not_away(up, provider):
    """Else the default model would be another's whenever the list is renewed."""
    up.models_script = [Gate(), Status(200, MODELS)]
    asking = asyncio.create_task(provider.list_models())
    await up.reached()
    was_away = provider.is_away
    up.open()

    assert (["m"], False, False) == (await asking, was_away, provider.is_away)


# gateways


@requirement("net.gateways")
async def test_a_gateway_has_a_path_headers_and_parameters_of_its_own(up):
    """In each request, for the list of models too."""
    up.at["GET /team/llm/v1/models"] = [Status(200, MODELS)]
    up.at["POST /team/llm/v1/chat/completions"] = [Raw(WHOLE)]
    provider = made(
        up,
        base_url=f"http://{up.host}:{up.port}/team/llm/v1?a=b",
        query={"tenant": "e u"},
        headers={"X-Team": "blue"},
        key_header="x-gateway-key",
    )
    heard = await listen(provider, asked())
    models = await provider.list_models()
    await provider.close()

    assert (SAID.text, ["m"]) == (heard.text, models)
    for request in up.others:
        assert request.path.endswith("?a=b&tenant=e+u")
        assert ("blue", SAID.secret) == (request.headers["x-team"], request.headers["x-gateway-key"])
        assert "authorization" not in request.headers


@requirement("net.gateways")
@pytest.mark.parametrize("dialect", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
async def test_every_dialect_sends_the_headers_and_parameters_of_the_settings(up, dialect):
    """A gateway may stand before any of them."""
    base = {"openai": "/v1", "openai-responses": "/v1", "gemini": "/v1beta"}.get(dialect, "")
    provider = made(
        up,
        dialect=dialect,
        base_url=f"http://{up.host}:{up.port}{base}",
        query={"tenant": "eu"},
        headers={"X-Team": "blue"},
        key_header="x-gateway-key",
    )
    await listen(provider, asked())
    await provider.close()

    [request] = up.requests
    assert ("eu", "blue", SAID.secret) == (
        request.query("tenant"),
        request.headers["x-team"],
        request.headers["x-gateway-key"],
    )


@requirement("net.gateways", "truth.redacted")
async def test_secrets_in_headers_and_parameters_of_the_settings_are_in_no_error(up):
    """Gateways quote the request that they refuse."""
    quoted = "Denied: /v1/chat/completions?subscription-key=s3cret-4711-abcdef with x-auth-token t0ken-0815-ghijkl"
    up.enqueue([Status(400, {"error": {"message": quoted}})])
    provider = made(up, query={"subscription-key": "s3cret-4711-abcdef"}, headers={"X-Auth-Token": "t0ken-0815-ghijkl"})
    heard = await listen(provider, asked())
    await provider.close()

    assert "Denied" in str(heard.error)
    assert "s3cret" not in str(heard.error)
    assert "t0ken" not in str(heard.error)


@requirement("net.gateways")
async def test_a_deployment_of_azure_stands_in_the_path(up):
    """With the version in the query, and the key in `api-key`; Azure's first chunk has no choice."""
    filtered = {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}
    provider = made(up, profile="azure", base_url=f"http://{up.host}:{up.port}", models=("my gpt",))
    up.at["POST /openai/deployments/my%20gpt/chat/completions"] = [
        Raw(b"data: " + str(filtered).replace("'", '"').encode() + b"\n\n" + WHOLE)
    ]
    heard = await listen(provider, asked("my gpt"))
    await provider.close()

    [request] = up.requests
    assert (SAID.text, None) == (heard.text, heard.error)
    assert "/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21" == request.path
    assert (SAID.secret, True) == (request.headers["api-key"], "authorization" not in request.headers)


@requirement("net.gateways")
async def test_the_version_of_azure_can_be_set(up):
    """Newer models want a newer one."""
    provider = made(
        up, profile="azure", base_url=f"http://{up.host}:{up.port}", query={"api-version": "2025-04-01-preview"}
    )
    await listen(provider, asked())
    await provider.close()
    await until(lambda: up.requests)

    assert "2025-04-01-preview" == up.requests[0].query("api-version")
