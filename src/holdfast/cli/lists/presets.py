"""`holdfast presets`: what is kept under a name, to chat with a model in the same way again.

A name that begins with a slash is a prompt, as it is typed in a chat.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import click

from .. import show
from ..chat.named import preset_named, prompt_named
from ..client import Api, Object, calls_api
from ..commands import json_option, read_json, write_text
from ..completion import complete_models, complete_named
from ..tables import Column, TableCell, print_list


@click.group()
def presets() -> None:
    """List, show, add, remove, export and import presets and prompts."""


COLUMNS = (
    Column("name", lambda each: f"/{each['name']}" if "text" in each else each["name"]),
    Column("model", can_wait=True),
    Column("default", lambda each: TableCell("default" if each["default"] else "", "green"), can_wait=True),
    Column("group", "group_name", can_wait=True),
    Column("from", "by", can_wait=True),
    Column("text", lambda each: each["text"] if "text" in each else each["system"], is_text=True),
)


@presets.command("ls")
@json_option
@calls_api
async def presets_ls(api: Api, as_json: bool) -> None:
    """List presets and prompts: your own, and those that others share with your groups."""
    kept = await api.call("GET", "/api/presets")
    prompts = (await api.call("GET", "/api/prompts"))["prompts"]
    rows = [{"model": "", **each, "default": each["id"] == kept["default"]} for each in (*kept["presets"], *prompts)]
    listed = {"presets": kept["presets"], "default": kept["default"], "prompts": prompts}
    empty = "No presets. Add one with: holdfast presets add NAME -m MODEL --system TEXT"
    print_list(COLUMNS, rows, as_json, json=listed, empty=empty)


@presets.command("show")
@click.argument("name", shell_complete=complete_named)
@calls_api
async def presets_show(api: Api, name: str) -> None:
    """Print a preset, or a prompt by /NAME, as JSON."""
    sys.stdout.write(show.as_json(await _named(api, name)))


async def _named(api: Api, name: str) -> Object:
    return await (prompt_named(api, name[1:]) if name.startswith("/") else preset_named(api, name))


@presets.command("add")
@click.argument("name")
@click.option("-m", "--model", shell_complete=complete_models, help="Model, as PROVIDER/MODEL. Default: the server's.")
@click.option("--system", help="System prompt.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter, such as temperature=0.2.")
@click.option("--text", help="Text of a prompt, with {{variables}}. Default: standard input.")
@click.option("--group", default="", help="Share it with this group of yours (its name).")
@click.option("--default", "is_default", is_flag=True, help="Begin new chats of the page with it.")
@calls_api
async def presets_add(api: Api, name: str, text: str | None, group: str, **setup: Any) -> None:
    """Add a preset; or a prompt, if the name begins with a slash."""
    if name.startswith("/"):
        if any(setup.values()):
            raise click.UsageError("A prompt has only --text and --group.")
        await _add_prompt(api, name[1:], text, group)
    elif text is not None:
        raise click.UsageError("--text is for prompts. A prompt's name begins with a slash: /NAME.")
    else:
        await _add_preset(api, name, group, **setup)
    click.echo(f"Added {name}.")


async def _add_preset(
    api: Api, name: str, group: str, model: str | None, system: str | None, params: tuple[str, ...], is_default: bool
) -> None:
    body = {"name": name, "model": model, "system": system, "params": dict(map(_param, params))}
    made = await api.call("POST", "/api/presets", body | {"group": await _group(api, group)})
    if is_default:
        await api.call("PUT", "/api/presets/default", {"preset": made["id"]})


async def _add_prompt(api: Api, name: str, text: str | None, group: str) -> None:
    if text is None:
        text = "" if sys.stdin.isatty() else sys.stdin.read().strip()
    if not text:
        raise click.UsageError(f'No text given. Try: holdfast presets add /{name} --text "Summarize: {{{{text}}}}"')
    await api.call("POST", "/api/prompts", {"name": name, "text": text, "group": await _group(api, group)})


def _param(given: str) -> tuple[str, Any]:
    """Return the name and the value of a parameter. What is no JSON is a text."""
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise click.UsageError(f"--param {given!r} is not NAME=VALUE.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


async def _group(api: Api, name: str) -> str:
    if not name:
        return ""
    groups = (await api.call("GET", "/api/presets"))["groups"]
    for group in groups:
        if name in (group["id"], group["name"]):
            return str(group["id"])
    known = ", ".join(group["name"] for group in groups)
    raise click.ClickException(f"You are in no group {name!r}.{f' Your groups: {known}.' if known else ''}")


@presets.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_named)
@calls_api
async def presets_rm(api: Api, names: tuple[str, ...]) -> None:
    """Remove presets of yours, and prompts by /NAME. Chats that use a preset keep their settings."""
    for name in names:
        found = await _named(api, name)
        if not found["own"]:
            raise click.ClickException(f"{name} is {found['by']}'s. Only its owner removes it.")
        kind = "prompts" if name.startswith("/") else "presets"
        await api.call("DELETE", f"/api/{kind}/{found['id']}")
        click.echo(f"Removed {name}.")


@presets.command("export")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=pathlib.Path))
@calls_api
async def presets_export(api: Api, file: pathlib.Path | None) -> None:
    """Write your presets and prompts to a file, or print them."""
    write_text(show.as_json(await api.call("GET", "/api/presets/export")), file)


@presets.command("import")
@click.argument("file", type=click.File("rb"))
@json_option
@calls_api
async def presets_import(api: Api, file: Any, as_json: bool) -> int:
    """Add the presets and prompts of a file. `-` is standard input. Nothing that you have is replaced."""
    report = await api.call("POST", "/api/presets/import", read_json(file))
    name = Column("name", lambda each: ("/" if each["kind"] == "prompt" else "") + each["name"])
    columns = (Column("kind"), name, Column("result"), Column("why", is_text=True))
    print_list(columns, report["entries"], as_json, json=report)
    return 1 if any(each["result"] == "refused" for each in report["entries"]) else 0
