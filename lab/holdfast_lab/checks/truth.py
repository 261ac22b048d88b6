"""The truth table: how each ending of an upstream is told to a client, as a stream and as one object."""

from __future__ import annotations

from ..reading import Reader
from ..scripts import ENDINGS, TEXT, Ending, Tag
from . import Check, Lab, Seen

__all__ = ["CHECKS"]


def _judge(ending: Ending, told: Reader) -> Seen:
    """Compare what was told with what may be told: the ending first, then the text."""
    said = f"told as {told.ending}{f' ({told.words})' if told.words else ''}"
    whole = '{"a":1,"b":2}' if ending.tools else TEXT if ending.text != "none" else ""
    shown = told.arguments.replace(" ", "").replace("'", '"') if ending.tools else told.text
    if told.ending == "unsaid" and "unsaid" not in ending.may_be:
        return Seen(False, "it just ended, and nothing was said: many clients take that for success")
    if told.ending not in ending.may_be:
        return Seen(False, said)
    if told.ending in ("success", "truncated") and shown != whole:
        return Seen(False, f"{said}, but with another text: {shown[:60]!r}")
    if not whole.startswith(shown):
        return Seen(False, f"{said}, with a text that no model said: {shown[:60]!r}")
    return Seen(True, said)


def _untold(ending: Ending, patience: float, *, asked: int) -> Seen:
    """Judge that nothing was told for too long: by a server that waits or tries again it may be, later."""
    what = f"nothing was told within {patience:g} s"
    if ending.waits:
        return Seen(None, what)
    if asked > 1:
        return Seen(None, f"{what}: it asked the upstream {asked} times")
    return Seen(False, f"{what}, though the upstream had ended")


def _look(name: str, ending: Ending, *, stream: bool) -> Check:
    async def look(lab: Lab) -> Seen:
        patience, tag = lab.silence if ending.waits else lab.patience, Tag(name)
        try:
            told = await lab.ask(tag, stream=stream, tools=ending.tools, timeout=patience)
        except TimeoutError:
            return _untold(ending, patience, asked=len(lab.upstream.tagged[tag.token]))
        if told.ending == "failure" and not lab.upstream.tagged[tag.token]:
            return Seen(None, f"told as failure ({told.words}), but the upstream was not asked")
        return _judge(ending, told)

    may_be = " or ".join(sorted(ending.may_be - {"unsaid"}))
    needs = {word for word, needed in (("json", not stream), ("tools", ending.tools)) if needed}
    return Check(
        f"truth/{name}{'' if stream else '.json'}",
        f"{ending.what}{'' if stream else ', without streaming'}: told as {may_be}",
        look,
        frozenset(needs),
    )


async def _refused(lab: Lab, *, stream: bool) -> Seen:
    """The upstream stops listening for as long as the answer takes."""
    lab.upstream.refuse()
    try:
        told = await lab.ask(Tag("completed"), stream=stream)
    except TimeoutError:
        return Seen(None, f"nothing was told within {lab.patience:g} s: it may have tried again")
    finally:
        await lab.upstream.listen()
    refused = Ending("", (), frozenset({"failure"}), "none")
    return _judge(refused, told)


async def _refused_stream(lab: Lab) -> Seen:
    return await _refused(lab, stream=True)


async def _refused_json(lab: Lab) -> Seen:
    return await _refused(lab, stream=False)


_PROMISE = "the upstream refuses the connection: told as failure"

CHECKS = [
    *(_look(name, ending, stream=True) for name, ending in ENDINGS.items()),
    Check("truth/refused", _PROMISE, _refused_stream, alone=True),
    *(_look(name, ending, stream=False) for name, ending in ENDINGS.items() if ending.json),
    Check("truth/refused.json", f"{_PROMISE}, without streaming", _refused_json, frozenset({"json"}), alone=True),
]
