"""The files that an agent has written for its owner: listed and read by that owner, and by nobody else."""

import os
from urllib.parse import quote

import pytest

from holdfast.server.features.agents import workspaces
from tests.acceptance.test_agent_owners import KEYS, WRITES, two_owners
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.http import Client
from tests.support.upstream import Upstream

FILES = "/api/agents/helper/files"


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def world(up, tmp_path):
    async with serving(up, tmp_path, tools=("files",), folder=str(tmp_path / "work")) as served:
        yield served


def content(path):
    return f"{FILES}/content?path={quote(path, safe='')}"


@requirement("agent.workspace")
async def test_a_folder_is_listed_and_its_files_are_read(world, tmp_path):
    """Names as they are, whatever is in them; folders, and what is no file, are told apart."""
    empty = await world.api.get(FILES)
    assert not (tmp_path / "work").exists()
    (tmp_path / "work" / "notes").mkdir(parents=True)
    (tmp_path / "work" / "notes" / "<b>a.md").write_text("hello")
    os.mkfifo(tmp_path / "work" / "pipe")
    top = await world.api.get(FILES)
    below = await world.api.get(f"{FILES}?path=notes")
    read = await world.api.client.get(content("notes/<b>a.md"))

    assert ({"path": "", "entries": [], "more": 0}) == empty
    assert [("notes", "folder"), ("pipe", "other")] == [(each["name"], each["kind"]) for each in top["entries"]]
    assert [("<b>a.md", "file", 5)] == [(each["name"], each["kind"], each["size"]) for each in below["entries"]]
    assert (200, "hello") == (read.status, await read.text())


@requirement("agent.workspace")
@pytest.mark.parametrize(("tools", "has_files"), [(("files",), True), ((), False)])
async def test_the_list_of_models_says_which_agents_have_files(up, tmp_path, tools, has_files):
    """The page offers the files of those alone."""
    async with serving(up, tmp_path, tools=tools) as served:
        models = (await served.api.get("/api/models"))["models"]
        listed = await served.api.client.get(FILES)

    assert {"agent/helper": has_files, "up/m": False, "up/next": False} == {
        each["id"]: each["files"] for each in models
    }
    assert (200 if has_files else 404) == listed.status


@requirement("agent.workspace")
@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link", "linked/secret", "a\0b", "none", ".", "x" * 5000])
async def test_no_path_leads_out_of_the_folder(world, tmp_path, path):
    """Neither by dots, nor by a link, nor from the top of the machine; and no error shows where the folder is."""
    (tmp_path / "secret").write_text("CANARY")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "work" / "linked").symlink_to(tmp_path)
    responses = [
        await world.api.client.get(content(path)),
        await world.api.client.get(f"{FILES}?path={quote(path + '/..', safe='')}"),
    ]

    assert [404, 404] == [response.status for response in responses]
    for response in responses:
        said = await response.text()
        assert "CANARY" not in said
        assert str(tmp_path) not in said


@requirement("agent.workspace")
async def test_no_file_is_run_as_a_page(world, tmp_path):
    """Only pictures are shown by a browser; a page, also one that is called a picture, is saved."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "page.html").write_text("<script>alert(1)</script>")
    (tmp_path / "work" / "page.png").write_text("<svg onload='alert(1)'/>")
    (tmp_path / "work" / "real.png").write_bytes(b"\x89PNG\r\n\x1a\n...")
    page, fake, real = [
        (await world.api.client.get(content(name))).headers for name in ("page.html", "page.png", "real.png")
    ]

    for headers in (page, fake):
        assert ("application/octet-stream", "attachment") == (headers["content-type"], headers["content-disposition"])
    assert "image/png" == real["content-type"]
    for headers in (page, fake, real):
        assert "default-src 'none'; sandbox" == headers["content-security-policy"]
        assert ("nosniff", "no-store") == (headers["x-content-type-options"], headers["cache-control"])


@requirement("agent.workspace")
async def test_a_file_that_is_too_large_is_not_sent(world, tmp_path, monkeypatch):
    """It is refused with words, and the server reads no more than the limit."""
    monkeypatch.setattr(workspaces, "MOST_SENT", 1_000_000)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "large").write_bytes(b"." * 1_000_001)
    response = await world.api.client.get(content("large"))

    assert 404 == response.status
    assert "has more than 1 MB" in (await response.json())["error"]["message"]


@requirement("agent.workspace", "safe.agent-owners")
async def test_each_owner_sees_the_files_of_their_own(tmp_path):
    """The same agent and the same path; for who may not use the agent, and for an unknown one, there is nothing."""
    async with two_owners(tmp_path, **WRITES) as call:
        await call("ada", "files_write", path="diary.txt", content="CANARY")
        found = {}
        for owner, key in KEYS.items():
            async with Client(call.url, {"authorization": f"Bearer {key}"}) as client:
                listed = await (await client.get(FILES)).json()
                read = await client.get(content("diary.txt"))
                unknown = await client.get(FILES.replace("helper", "other"))
                found[owner] = ([each["name"] for each in listed["entries"]], read.status, unknown.status)

    assert {"ada": (["diary.txt"], 200, 404), "bob": ([], 404, 404)} == found
