"""What is there without a settings file: keys in the environment, and servers that listen on this machine."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from holdfast.server.config.settings import discovered
from holdfast.server.live.discovery import listening, load_and_look
from tests.support.waiting import SOON

PATIENT = 10.0  # seconds for a server that does answer, on a machine that is busy
OLLAMA = {"/api/version": (200, {"version": "0.40.12"})}
LM_STUDIO = {"/v1/models": (200, {"object": "list", "data": [{"id": "m"}]})}
LLAMA_SERVER = {"/v1/models": (200, {"object": "list", "data": [{"id": "m", "owned_by": "llamacpp"}]})}
LOADING = {"/v1/models": (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})}


@contextmanager
def answering(paths: Mapping[str, tuple[int, Any]], server: str = "other") -> Iterator[str]:
    """A server that knows some paths; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = paths.get(self.path, (404, {}))
            data = json.dumps(body).encode()
            self.send_response_only(status)
            self.send_header("Server", server)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"127.0.0.1:{listener.server_port}"
        finally:
            listener.shutdown()
            thread.join()


@pytest.fixture
def nobody() -> Iterator[dict[str, str]]:
    """An environment whose three places lead to a port that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        yield {"OLLAMA_HOST": address, "LLAMACPP_URL": address, "LMSTUDIO_URL": address}


def names(environ: Mapping[str, str]) -> list[str]:
    return [provider.name for provider in discovered(environ)]


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("OPENAI_API_KEY", "openai"),
        ("OPENROUTER_API_KEY", "openrouter"),
        ("GROQ_API_KEY", "groq"),
        ("DEEPSEEK_API_KEY", "deepseek"),
    ],
)
def test_a_key_in_the_environment_is_a_provider(variable, name):
    """Whoever has a key has exported it long ago."""
    assert [name, "local", "scripted"] == names({variable: "k"})
    assert "k" == discovered({variable: "k"})[0].key({variable: "k"})


def test_an_empty_key_is_none():
    """`OPENAI_API_KEY=` in a unit file means that there is none."""
    assert ["local", "scripted"] == names({"OPENAI_API_KEY": ""})


def test_another_address_for_openai_is_taken_without_what_is_known_of_openai():
    """Behind OPENAI_BASE_URL may stand anything: it may send `<think>`, which OpenAI does not."""
    (found, *_) = discovered({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})

    assert ("openai", None, "http://127.0.0.1:9/v1") == (found.name, found.profile, found.base_url)
    assert found.behaviour().think


@pytest.mark.parametrize(
    ("variable", "paths", "server", "name"),
    [
        ("OLLAMA_HOST", OLLAMA, "", "ollama"),
        ("LLAMACPP_URL", LLAMA_SERVER, "llama.cpp", "llamacpp"),
        ("LLAMACPP_URL", LOADING, "llama.cpp", "llamacpp"),
        ("LMSTUDIO_URL", LM_STUDIO, "", "lmstudio"),
    ],
)
def test_a_server_that_listens_is_found_with_its_profile(variable, paths, server, name, nobody):
    """A local server is simply there; one that still loads its model will be in a moment."""
    with answering(paths, server) as address:
        (found,) = listening({**nobody, variable: f"http://{address}"}, PATIENT)

    assert (name, name, f"http://{address}/v1") == (found.name, found.profile, found.base_url)


def test_all_of_them_are_found_at_once_in_a_fixed_order(nobody):
    """The first model that is there is the default one, so that chance must not choose it."""
    with answering(OLLAMA) as one, answering(LLAMA_SERVER, "llama.cpp") as two, answering(LM_STUDIO) as three:
        found = listening({"OLLAMA_HOST": one, "LLAMACPP_URL": two, "LMSTUDIO_URL": three}, PATIENT)

    assert ["ollama", "llamacpp", "lmstudio"] == [provider.name for provider in found]


@pytest.mark.parametrize(
    ("variable", "paths"),
    [
        ("LLAMACPP_URL", LLAMA_SERVER),
        ("LLAMACPP_URL", {"/health": (200, {"status": "ok"})}),
        ("OLLAMA_HOST", LM_STUDIO),
    ],
)
def test_another_server_on_the_same_port_is_not_taken_for_it(variable, paths, nobody):
    """Port 8080 is everybody's, and prompts must not go to just anybody."""
    with answering(paths, "nginx") as address:
        assert () == listening({**nobody, variable: address}, PATIENT)


@pytest.mark.parametrize("written", ["{}", "http://{}", "http://{}/", " {} "])
def test_ollamas_address_is_read_as_ollama_reads_it(written, nobody):
    """With a scheme or without."""
    with answering(OLLAMA) as address:
        (found,) = listening({**nobody, "OLLAMA_HOST": written.format(address)}, PATIENT)

    assert f"http://{address}/v1" == found.base_url


def test_the_address_on_which_ollama_listens_is_turned_into_one_that_can_be_called(nobody):
    """OLLAMA_HOST=0.0.0.0 tells Ollama where to bind; nobody can call that."""
    with answering(OLLAMA) as address:
        port = address.partition(":")[2]
        (found,) = listening({**nobody, "OLLAMA_HOST": f"0.0.0.0:{port}"}, PATIENT)

    assert f"http://127.0.0.1:{port}/v1" == found.base_url


@pytest.mark.parametrize("garbage", ["http://[::", "127.0.0.1:port", "127.0.0.1:99999", "ftp://127.0.0.1", "\x00"])
def test_an_address_that_is_none_is_passed_over(garbage, nobody):
    """A start must not fail by a variable that belongs to another program."""
    assert () == listening({**nobody, "OLLAMA_HOST": garbage}, PATIENT)


def test_a_silent_server_delays_the_start_by_no_more_than_the_limit(nobody):
    """Something that accepts and says nothing is the worst case: refused connections cost nothing."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        found = listening({**nobody, "OLLAMA_HOST": address, "LLAMACPP_URL": address, "LMSTUDIO_URL": address})

        assert () == found
        assert time.monotonic() - began < SOON


def test_what_is_found_stands_between_the_keys_and_the_built_in_model(nobody, tmp_path, monkeypatch):
    """A key was given on purpose, and the built-in model is for those who have nothing else."""
    monkeypatch.chdir(tmp_path)
    with answering(OLLAMA) as address:
        settings = load_and_look({}, {**nobody, "OLLAMA_HOST": address, "GROQ_API_KEY": "k"}, within=PATIENT)

    assert ["groq", "ollama", "local", "scripted"] == [provider.name for provider in settings.providers]


def test_nobody_is_asked_where_the_settings_name_providers(nobody, tmp_path):
    """Who has written down the providers wants those, and no knocking at other doors."""
    file = tmp_path / "holdfast.toml"
    file.write_text('[[providers]]\nname = "up"\nbase_url = "http://127.0.0.1:9/v1"\n')
    with answering(OLLAMA) as address:
        settings = load_and_look({}, {**nobody, "OLLAMA_HOST": address}, file, within=PATIENT)

    assert ["up", "local", "scripted"] == [provider.name for provider in settings.providers]
