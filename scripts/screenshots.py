"""Pictures of every view for the documents: light and dark, on a desk and on a phone. `make screenshots` runs it."""

import asyncio
import base64
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from playwright.async_api import Browser, async_playwright, expect  # noqa: E402

from tests.browser.tab import Tab  # noqa: E402
from tests.support.native import Native  # noqa: E402
from tests.support.people import add_person, first_admin  # noqa: E402
from tests.support.programs import CHROMIUM  # noqa: E402
from tests.support.server import Server, provider  # noqa: E402
from tests.support.upstream import (  # noqa: E402
    Cut,
    Delta,
    Done,
    Finish,
    Gate,
    Hang,
    Headers,
    Pause,
    ReasoningDelta,
    Role,
    Upstream,
    UsageChunk,
    answer,
)

IMAGES = ROOT / "docs" / "images"
SIZES: dict[str, dict[str, Any]] = {
    "": {"viewport": {"width": 1200, "height": 780}},
    "-phone": {
        "viewport": {"width": 390, "height": 760},
        "has_touch": True,
        "is_mobile": True,
        "device_scale_factor": 1.5,
    },
}
QUESTION = "Why are there two tides a day, and not one?"
ANSWER = """The moon pulls harder on the side of the earth that faces it, and less on the far side.
**Seen from the earth's middle**, water is drawn out on *both* sides:

| side | what the moon does | result |
| --- | --- | ---: |
| near | pulls the water away from the earth | a bulge |
| far | pulls the earth away from the water | a bulge |

The force that stretches falls with the third power of the distance: $F \\approx \\frac{2 G M m r}{d^3}$.

```python
def tide(hour: float) -> float:
    # two bulges, and the earth turns beneath them
    return 2.1 * math.cos(2 * math.pi * hour / 12.42)
```
"""
AGENT = """
[[agents]]
name = "helper"
model = "scripted/steps"
tools = ["files", "shell"]
folder = "."

[prices]
"sea/tide-large" = { input = 0.5, output = 2.0 }
"""
WORK = """files_list {"path": "."}
shell {"command": "set -e\\nfor hour in 0 6 12 18; do\\n  ./tide --hour $hour >> table.csv\\ndone\\nsort -n table.csv"}
Done."""
SHORT = "Because the earth turns beneath **two** bulges of water: one on the side of the moon, one on the far side."
LONG = "The moon draws the near side harder than the far one. Seen from the middle, that stretches the sea both ways."


async def make_sessions(api: Native, up: Upstream) -> dict[str, str]:
    """What the pictures show: an answer of every kind, one that failed, one that goes on, and a few titles more."""
    paths = {"empty": "/", "settings": "/settings", "runs": "/runs"}
    agent = await api.new_session(model="agent/helper", title="A table of the tides")
    await api.start(agent, WORK, "agent/helper")
    paths["approval"] = f"/s/{agent}"
    for title in ("A recipe for bouillabaisse", "Names for a small boat", "مواعيد المد والجزر"):
        up.enqueue(answer("Gladly."))
        await say(api, title)
    up.enqueue([Headers(), Role(), ReasoningDelta("Two bulges, so two tides."), Delta(ANSWER), *end()])
    session, run = await say(api, QUESTION)
    paths |= {"chat": f"/s/{session}", "run": f"/runs/{run}"}
    up.enqueue([Headers(), Role(), Delta(LONG), Pause(0.5), Cut()])
    paths["failed"] = f"/s/{(await say(api, 'How high is the highest tide?'))[0]}"
    up.enqueue([Headers(), Role(), Delta(LONG), Hang()])
    live = await api.new_session(model="sea/tide-large")
    run = await api.start(live, "And on a planet with two moons?", "sea/tide-large")
    await api.shown(run, LONG)
    await api.start(live, "Then compare it with Jupiter's moons", "sea/tide-large", if_busy="queue")
    return paths | {"going-on": f"/s/{live}"}


async def say(api: Native, text: str) -> tuple[str, str]:
    session = await api.new_session(model="sea/tide-large")
    run = await api.start(session, text, "sea/tide-large")
    await api.settled(run)
    return session, run


def end() -> list[Any]:
    return [Finish(), UsageChunk(24, 212), Done()]


async def compare(tab: Tab, up: Upstream) -> None:
    """Three models, one of which fails; the vote is still open."""
    up.models |= {
        "tide-large": answer(ANSWER),
        "tide-small": answer(SHORT),
        "tide-old": [Headers(), Role(), Delta("The moon"), Pause(0.3), Cut()],
    }
    await tab.open("/compare")
    for model in ("sea/tide-large", "sea/tide-small", "sea/tide-old"):
        await tab.page.get_by_role("button", name="Add model").click()
        await tab.page.get_by_label("Search models").fill(model)
        await tab.page.get_by_label("Search models").press("Enter")
    await tab.page.get_by_label("Prompt for all models").fill(QUESTION)
    await tab.button("Send to all").click()
    await expect(tab.page.locator(".pane[data-status=settled]")).to_have_count(3)


async def take(tab: Tab, name: str) -> None:
    """When fonts, formulas and colours are there and nothing moves any more."""
    await expect(tab.page.locator("main .loading")).to_have_count(0)
    await tab.measure("document.fonts.ready.then(() => null)")
    await tab.page.wait_for_timeout(400)
    await tab.page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")
    print(f"docs/images/{name}.png")


async def take_all(browser: Browser, url: str, paths: dict[str, str], up: Upstream) -> None:
    for size, options in SIZES.items():
        for scheme in ("light", "dark"):
            context = await browser.new_context(
                base_url=url, color_scheme=scheme, reduced_motion="reduce", locale="en-GB", **options
            )
            tab = Tab(await context.new_page())
            ending = size + ("-dark" if scheme == "dark" else "")
            for view, path in paths.items():
                await tab.open(path)
                if view in ("chat", "failed", "going-on", "approval"):
                    await expect(tab.last_answer).to_be_visible()
                if view == "approval":
                    await expect(tab.page.locator(".approval")).to_be_visible()
                await take(tab, f"{view}{ending}")
            await compare(tab, up)
            await take(tab, f"compare{ending}")
            await context.close()


# The moving picture of the README: one chat, while its tab is closed and its server is killed.

SECONDS = 3.0
"""How long each frame is shown."""
STORY = (
    "You ask a question.",
    "The response begins, word by word.",
    "You close the tab. The response goes on without you.",
    "You open the chat again, anywhere: nothing is missing.",
    "kill -9: the server is gone in the middle of a response.",
    "It starts again: every word is there, and it is not passed off as complete.",
)
TOLD = LONG + " "
MORE = (
    "So there are two bulges:\n\n"
    "1. Near: the moon pulls the water away.\n"
    "2. Far: it pulls the earth away.\n\n"
    "A harbour passes"
)
WIDTH, HEIGHT, LINE = 760, 470, 44
COLOURS = {
    "light": {"ink": "#1d1d1b", "paper": "#ffffff", "line": "#d8d4cc", "brand": "#1b6863"},
    "dark": {"ink": "#e6e6e3", "paper": "#0d1117", "line": "#3a4144", "brand": "#74cbc2"},
}


async def tell_story(browser: Browser) -> None:
    """Take the story in each colour scheme: in order, on a server that is killed."""
    for scheme, colours in COLOURS.items():
        with tempfile.TemporaryDirectory() as folder:
            async with Upstream() as up:
                up.models["tide-large"] = [Headers(), Role(), Delta(TOLD), Gate("more"), Delta(MORE), Hang()]
                async with Server(Path(folder), [provider(up.base_url, name="sea", models=["tide-large"])]) as server:
                    shots = await _story_of(browser, server, up, scheme)
        name = "story" + ("-dark" if scheme == "dark" else "") + ".svg"
        (IMAGES / name).write_text(moving(shots, colours), encoding="utf-8")
        print(f"docs/images/{name}")


def moving(shots: list[bytes | None], colours: dict[str, str]) -> str:
    """Return an SVG that shows one frame after the other; the last one to those who want no motion."""
    count = len(shots)
    frames = "".join(_frame(number, shot, STORY[number], colours) for number, shot in enumerate(shots))
    steps = f"0%, {100 / count:.3f}% {{ opacity: 1 }} {100 / count + 0.01:.3f}%, 100% {{ opacity: 0 }}"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + LINE}" role="img">
<title>One chat, whose tab is closed and whose server is killed</title><desc>{" ".join(STORY)}</desc>
<style>
@keyframes show {{ {steps} }}
g {{ opacity: 0; animation: show {count * SECONDS:g}s step-end infinite }}
text {{ font: 19px system-ui, sans-serif; fill: {colours["ink"]} }}
.number {{ fill: {colours["brand"]}; font-weight: 700 }}
@media (prefers-reduced-motion: reduce) {{ g {{ animation: none }} g:last-of-type {{ opacity: 1 }} }}
</style>
{frames}</svg>
"""


def _frame(number: int, shot: bytes | None, caption: str, colours: dict[str, str]) -> str:
    """Return a frame with its caption; without a picture an empty window, as of a tab that is closed."""
    box = f'x="1" y="{LINE}" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10"'
    picture = ""
    if shot is not None:
        data = base64.b64encode(shot).decode()
        picture = (
            f'<image href="data:image/png;base64,{data}" x="1" y="{LINE}" width="{WIDTH - 2}" height="{HEIGHT - 2}"/>'
        )
    dash = ' stroke-dasharray="6 6"' if shot is None else ""
    return (
        f'<g style="animation-delay: {number * SECONDS:g}s">{picture}'
        f'<rect {box} fill="{"none" if shot else colours["paper"]}" stroke="{colours["line"]}" stroke-width="2"{dash}/>'
        f'<text x="4" y="26"><tspan class="number">{number + 1}</tspan>  {caption}</text></g>\n'
    )


async def _story_of(browser: Browser, server: Server, up: Upstream, scheme: Any) -> list[bytes | None]:
    size = {"width": WIDTH - 2, "height": HEIGHT - 2}
    context = await browser.new_context(
        base_url=server.url, color_scheme=scheme, reduced_motion="reduce", locale="en-GB", viewport=size
    )
    first = Tab(await context.new_page())
    await first.open("/")
    await first.page.get_by_role("textbox", name="Message").fill("Why are there two tides a day?")
    shots: list[bytes | None] = [await first.page.screenshot(animations="disabled")]
    await first.page.get_by_role("textbox", name="Message").fill("")
    await first.say("Why are there two tides a day?")
    await expect(first.live).to_contain_text(LONG)
    shots += [await first.page.screenshot(animations="disabled"), None]
    path = first.page.url.removeprefix(server.url)
    await first.page.close()
    up.open("more")
    second = Tab(await context.new_page())
    await second.open(path)
    await expect(second.live).to_contain_text("A harbour passes")
    shots.append(await second.page.screenshot(animations="disabled"))
    await server.kill9()
    await expect(second.away).to_have_count(1)
    shots.append(await second.page.screenshot(animations="disabled"))
    await server.restart()
    await second.sees_ending("interrupted")
    await expect(second.away).to_have_count(0)
    shots.append(await second.page.screenshot(animations="disabled"))
    await context.close()
    return shots


async def show_people(browser: Browser) -> None:
    """Take the list of people, on a server with accounts."""
    with tempfile.TemporaryDirectory() as folder:
        async with Server(Path(folder), env={"HOLDFAST_OFFLINE": "1"}) as server:
            ada = await first_admin(server)
            for name, role in (("grace", "member"), ("katherine", "member"), ("dorothy", "guest")):
                await add_person(server, ada, name, role=role, email=f"{name}@example.org")
            context = await browser.new_context(base_url=server.url, locale="en-GB", **SIZES[""])
            name, _, value = ada.partition("=")
            await context.add_cookies([{"name": name, "value": value, "url": server.url}])
            tab = Tab(await context.new_page())
            await tab.open("/admin")
            await expect(tab.page.locator("[data-person]")).to_have_count(4)
            await take(tab, "admin")
            await context.close()


async def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        path = CHROMIUM.find(Path(playwright.chromium.executable_path))
        browser = await playwright.chromium.launch(executable_path=path)
        await tell_story(browser)
        if "story" not in sys.argv:  # `python scripts/screenshots.py story` takes nothing else
            await show_views(browser)
            await show_people(browser)
        await browser.close()


async def show_views(browser: Browser) -> None:
    """Take every view, on a server with chats of every kind."""
    with tempfile.TemporaryDirectory() as folder:
        async with Upstream() as up:
            sea = provider(up.base_url, name="sea", models=["tide-large", "tide-small", "tide-old"])
            providers = [sea, {"name": "scripted", "dialect": "scripted"}]
            async with Server(Path(folder), providers, config=AGENT) as server, server.client(timeout=30) as client:
                paths = await make_sessions(Native(client), up)
                await take_all(browser, server.url, paths, up)


if __name__ == "__main__":
    asyncio.run(main())
