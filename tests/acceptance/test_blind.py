"""Blind comparisons: every byte that a client can get before the vote is searched for whatever could name a model."""

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.compare import EVENTS, Compare, Watched
from tests.support.http import Client, Response
from tests.support.ports import free_port
from tests.support.routes import ENDPOINTS
from tests.support.server import UP_KEY, Server, provider
from tests.support.upstream import (
    Chunk,
    Cut,
    Delta,
    Done,
    Finish,
    Gate,
    Hang,
    Headers,
    InBandError,
    ReasoningDelta,
    Role,
    Status,
    Step,
    ToolDelta,
    Upstream,
    UsageChunk,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES_ALL_MODELS = ("/v1/models", "/api/models", "/api/tags", "/api/settings", "/openapi.json")
"""What tells of models at all, and nothing of which of them is in which pane."""
WORDS_OF_ANTHROPIC = ("end_turn", "max_tokens", "refusal")
"""What its wire says of any run, whoever has answered."""
FINGERPRINT = "fp_5ecre7f1n9er"
UPSTREAM_ID = "chatcmpl-givesitaway"
CALL_ID = "toolu_givesitaway"
LOGPROB = -0.3133715749
TELLTALE = "Overloaded: quillhost/kestrel-9b and zephyrworks/marlin-72b at $MODEL, key $KEY"


def said(text: str, finish: str, **more: Any) -> list[Step]:
    """An answer with all that an upstream may add to it."""
    content = {"index": 0, "delta": {"content": text}, "finish_reason": None, "logprobs": {"content": [_logprob(text)]}}
    envelope = {"id": UPSTREAM_ID, "system_fingerprint": FINGERPRINT, **more}
    return [
        Headers(headers={"x-request-id": UPSTREAM_ID, "openai-organization": "zephyrworks"}),
        Role(),
        ReasoningDelta("A thought."),
        Chunk({**envelope, "choices": [content]}),
        Finish(finish),
        UsageChunk(791_919, 10_472_929),
        Done(),
    ]


def _logprob(text: str) -> dict[str, Any]:
    return {"token": text, "logprob": LOGPROB, "bytes": list(text.encode()), "top_logprobs": []}


def telltale(code: int) -> Status:
    error = {"message": TELLTALE, "type": "marlin_error", "code": "kestrel_code", "param": None}
    return Status(code, {"error": error}, {"retry-after": "0"})


SCRIPTS: dict[str, list[Step]] = {
    "marlin-72b": said("One answer.", "end_turn"),
    "kestrel-9b": said("Another answer.", "max_tokens"),
    "osprey-mini": said("A third answer.", "refusal"),
    "heron-xl": [
        Headers(),
        Role(),
        ToolDelta(0, CALL_ID, "lookup", '{"query":'),
        ToolDelta(0, None, None, '"x"}'),
        Finish("tool_calls"),
        UsageChunk(791_919, 10_472_929),
        Done(),
    ],
    "gannet-pro": [telltale(429)],
    "petrel-pro": [telltale(500)],
    "fulmar-pro": [telltale(401)],
    "skua-pro": [telltale(400)],
    "plover-pro": [Headers(), Role(), Delta("Half."), InBandError({"message": TELLTALE, "type": "marlin_error"})],
    "dunlin-pro": [Headers(), Role(), Delta("Half."), Cut()],
    "curlew-pro": [Headers(), Role(), Delta("Half."), Finish("insufficient_system_resource"), Done()],
    "avocet-pro": [Headers(), Role(), Delta("Half."), Hang()],
}
CONFIG = """
log_level = "debug"

[fallbacks]
"zephyrworks/petrel-pro" = "quillhost/kestrel-9b"
"""


class World(NamedTuple):
    client: Client
    models: list[str]
    secrets: list[str]
    first: Upstream
    second: Upstream


@pytest_asyncio.fixture(loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Five providers: two upstreams that answer, one that is gone, one of another dialect, and the scripted one.

    Each test has a server of its own, since it looks at all that there is: what others have revealed would be found.
    """
    async with Upstream() as first, Upstream() as second:
        names = list(SCRIPTS)
        for up in (first, second):
            up.models.update(SCRIPTS)
        gone = f"http://127.0.0.1:{free_port()}/v1"
        providers = [
            provider(first.base_url, name="zephyrworks", models=names),
            provider(second.base_url, name="quillhost", models=names),
            provider(gone, name="ternmakers", models=["tern-3"]),
            provider(first.base_url, name="puffinai", models=["puffin-4"], dialect="anthropic"),
            {"name": "scripted", "dialect": "scripted"},
        ]
        models = [f"{('zephyrworks', 'quillhost')[n % 2]}/{name}" for n, name in enumerate(names)]
        models += ["ternmakers/tern-3", "puffinai/puffin-4", "scripted/think", "scripted/fail"]
        addresses = [url.removeprefix("http://").removesuffix("/v1") for url in (first.base_url, second.base_url, gone)]
        own = [part for model in models for part in model.split("/") if part not in ("think", "fail")]
        telling = [*addresses, "http://127.0.0.1", FINGERPRINT, UPSTREAM_ID, CALL_ID, UP_KEY, "Overloaded"]
        telling += ["3133715749", "791919", "10472929", "11264848"]
        telling += ["marlin_error", "kestrel_code", "end_turn", "max_tokens", "refusal", "insufficient", "on purpose"]
        async with Server(tmp_path_factory.mktemp("blind"), providers, config=CONFIG, env={"UP_KEY": UP_KEY}) as server:
            async with server.client() as client:
                yield World(client, models, [*dict.fromkeys(own), *telling], first, second)


class Spy(Client):
    """A client who keeps every byte of every answer, the headers too."""

    def __init__(self, client: Client) -> None:
        super().__init__(f"http://{client.host}:{client.port}")
        self.answers: list[tuple[str, Response]] = []

    async def send(self, method: str, path: str, **options: Any) -> Response:
        response = await super().send(method, path, **options)
        self.answers.append((f"{method} {path}", response))
        return response

    def found(self, secrets: list[str]) -> set[tuple[str, str]]:
        """Which of the secrets stand in which answer."""
        found: set[tuple[str, str]] = set()
        for call, answer in self.answers:
            headers = getattr(answer, "headers", {})  # none: it was left before anything came
            head = "\r\n".join(f"{name}: {value}" for name, value in headers.items())
            got = f"{head}\r\n\r\n{bytes(answer.raw_bytes).decode('utf-8', 'replace')}".lower()
            got = got.replace('"refusal":null', "")  # a field of every answer
            own_words = WORDS_OF_ANTHROPIC if call.startswith("GET /v1/messages/") else ()
            found |= {(call, secret) for secret in secrets if secret not in own_words and secret.lower() in got}
        return found


@pytest_asyncio.fixture(loop_scope="module")
async def spy(world: World) -> AsyncIterator[Spy]:
    async with Spy(world.client) as spy:
        yield spy


async def ask_everything(spy: Spy, comparison: dict[str, Any], patience: float = 2.0) -> None:
    """Ask every call that only looks, for every run, session and comparison that the client knows of."""
    for pane in comparison["panes"]:
        run = await (await spy.get(f"/api/runs/{pane['run_id']}")).json()
        known = defaultdict(
            lambda: "none",
            run_id=run["id"],
            session_id=run["session_id"],
            comparison_id=comparison["id"],
            completion_id=run["id"].replace("run_", "chatcmpl-"),
            answer_id=f"msg_{run['id']}",
            response_id=run["id"].replace("run_", "resp_"),
            n="0",
        )
        for endpoint in ENDPOINTS:
            if endpoint.method == "GET" and not endpoint.path.startswith(NAMES_ALL_MODELS):
                await _read(spy, _filled(endpoint.path, known), patience)
        for query in (f"?session_id={run['session_id']}", "?limit=200", "?status=settled"):
            await _read(spy, f"/api/runs{query}", patience)
        await _read(spy, f"/v1/chat/completions/{known['completion_id']}?stream=true", patience)
        await _read(spy, f"/api/runs/{run['id']}/events?after=snapshot", patience)
        await _read(spy, f"/api/events?session={run['session_id']}", min(patience, 0.3))
    for query in ("", "?query=answer", "?query=marlin"):
        await _read(spy, f"/api/sessions{query}", patience)
    await _read(spy, "/api/comparisons?limit=200", patience)


def _filled(path: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: known[match[1]], path)


async def _read(spy: Spy, path: str, patience: float) -> None:
    """Read an answer to its end, or for as long as anything comes."""
    response = await spy.send("GET", path)
    try:
        async with asyncio.timeout(patience):
            await response.body()
    except TimeoutError:
        response.leave()


async def ask_for_what_is_refused(spy: Spy, comparison: dict[str, Any]) -> None:
    path = f"/api/comparisons/{comparison['id']}"
    for pane in comparison["panes"]:
        if pane["settlement"]["outcome"] != "completed":
            await (await spy.post(f"{path}/vote", {"winner": pane["pane"]})).body()
        await (await spy.post(f"{path}/panes/{pane['pane']}/continue", {})).body()
        await (await spy.post(f"{path}/panes/{pane['pane']}/swap", {"model": "nobody/none"})).body()
        await (await spy.post(f"/api/runs/{pane['run_id']}/stop", {})).body()
        await (await spy.post(f"/api/runs/{pane['run_id']}/steer", {"input": "x"})).body()


@requirement("cmp.blind")
async def test_no_byte_before_the_vote_names_or_identifies_a_model(world, spy):
    """Sixteen panes that answer, think, call tools, refuse, fail in every way and fall silent; three rounds of them.

    All that the client is sent is kept: the streams, and the answer of every call that only looks, for every run and
    session there is. None of it has a name, an address, a key, a count or a word that only one of them would say.
    """
    body = {
        "prompt": "Which wave?",
        "models": world.models,
        "blind": True,
        "timeout": 3.0,
        "params": {"logprobs": True, "tools": [{"type": "function", "function": {"name": "lookup"}}]},
    }
    response = await spy.post("/api/comparisons", body, headers=EVENTS)
    watched = Watched(response)
    kept = await watched.end()
    await ask_everything(spy, kept)
    await ask_for_what_is_refused(spy, kept)
    second = await spy.post(f"/api/comparisons/{kept['id']}/turns", {"prompt": "And the sea?"}, headers=EVENTS)
    kept = await Watched(second).end()
    for pane in (0, 7):
        await (await spy.post(f"/api/comparisons/{kept['id']}/panes/{pane}/reroll", {})).body()
    await ask_everything(spy, await Compare(spy).get(kept["id"]))

    assert set() == spy.found(world.secrets)
    assert len(spy.answers) > 16 * 10
    assert {"completed", "truncated", "failed"} == {pane["settlement"]["outcome"] for pane in kept["panes"]}
    assert_nothing_was_withheld_in_vain(await Compare(world.client).vote(kept, "none"), world)


def assert_nothing_was_withheld_in_vain(kept: dict[str, Any], world: World) -> None:
    """The real names, errors, counts and reasons are there after the vote: so the search had something to find."""
    by_model = {pane["model"]: pane for pane in kept["panes"]}
    assert set(world.models) == set(by_model)
    marlin = by_model["zephyrworks/marlin-72b"]
    assert "end_turn" == marlin["settlement"]["finish_reason"]
    assert {
        "input_tokens": 791_919,
        "output_tokens": 10_472_929,
        "total_tokens": 11_264_848,
        "source": "provider",
    } == marlin["settlement"]["usage"]
    assert marlin["metrics"]["ttft_ms"] > 0
    errors = {name: pane["settlement"]["error"] for name, pane in by_model.items() if pane["settlement"]["error"]}
    assert "quillhost/kestrel-9b" in errors["zephyrworks/gannet-pro"]["message"]
    assert "upstream_rate_limited" == errors["zephyrworks/gannet-pro"]["code"]
    assert "upstream_unreachable" == errors["ternmakers/tern-3"]["code"]
    assert "upstream_auth" == errors["zephyrworks/fulmar-pro"]["code"]
    assert "upstream_broke" == errors["quillhost/dunlin-pro"]["code"]
    assert "deadline_exceeded" == errors["quillhost/avocet-pro"]["code"]
    assert "This model fails on purpose." == errors["scripted/fail"]["message"]
    assert 11 == len(errors)


@requirement("cmp.blind")
async def test_no_byte_names_a_model_while_the_panes_still_answer(world, spy):
    """Whoever looks at a run, or at the list of runs, while it goes on, sees its letter."""
    halting = [Headers(), Role(), Delta("Half."), Gate("halting"), *said("Rest.", "end_turn")[1:]]
    world.first.models["marlin-72b"] = world.second.models["kestrel-9b"] = halting
    body = {"prompt": "Which wave?", "models": ["zephyrworks/marlin-72b", "quillhost/kestrel-9b"], "blind": True}
    watched = Watched(await spy.post("/api/comparisons", body, headers=EVENTS))
    await watched.until("comparison.started")
    try:
        for pane in (0, 1):
            await watched.said(pane, "Half.")
        kept = await Compare(spy).get(watched.frames[0].json()["comparison"]["id"])
        assert ["running", "running"] == [pane["status"] for pane in kept["panes"]]
        await ask_everything(spy, kept, patience=0.4)
    finally:
        for up in (world.first, world.second):
            up.open("halting")
            up.models.update(SCRIPTS)
    await watched.end()

    assert set() == spy.found(world.secrets)
    assert ["blind/A", "blind/B"] == [
        frame.json()["model"] for pane in (0, 1) for frame in watched.frames if _starts(frame, pane)
    ]


def _starts(frame: Any, pane: int) -> bool:
    return frame.event == "run.started" and frame.json()["pane"] == pane


@requirement("cmp.blind")
async def test_the_search_would_find_a_leak(world, spy):
    """The same panes in the open: a search that finds nothing there could find nothing anywhere."""
    body = {"prompt": "Which wave?", "models": world.models, "timeout": 3.0}
    await Watched(await spy.post("/api/comparisons", body, headers=EVENTS)).end()

    seen = {secret for _, secret in spy.found(world.secrets)}
    assert {"zephyrworks", "marlin-72b", "ternmakers", "791919", "end_turn", "Overloaded", "on purpose"} <= seen


@requirement("cmp.blind")
async def test_which_model_gets_which_pane_is_drawn_by_lot(world):
    """Otherwise the order in the request would be the key."""
    compare = Compare(world.client)
    firsts = set()
    for _ in range(24):
        kept = await compare.whole(["scripted/echo", "scripted/think"], blind=True)
        firsts.add((await compare.vote(kept, "tie"))["panes"][0]["model"])

    assert {"scripted/echo", "scripted/think"} == firsts
