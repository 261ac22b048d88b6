"""Pictures of every view for the documents: light and dark, on a desk and on a phone. `make screenshots` runs it."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from playwright.async_api import Browser, async_playwright, expect  # noqa: E402

from tests.browser.chromium import find  # noqa: E402
from tests.browser.tab import Tab  # noqa: E402
from tests.support.native import Native  # noqa: E402
from tests.support.server import Server, provider  # noqa: E402
from tests.support.upstream import (  # noqa: E402
    Cut,
    Delta,
    Done,
    Finish,
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
SHORT = "Because the earth turns beneath **two** bulges of water: one on the side of the moon, one on the far side."
LONG = "The moon draws the near side harder than the far one. Seen from the middle, that stretches the sea both ways."


async def make_sessions(api: Native, up: Upstream) -> dict[str, str]:
    """What the pictures show: an answer of every kind, one that failed, one that goes on, and a few titles more."""
    paths = {"empty": "/", "settings": "/settings"}
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
        await tab.page.get_by_role("button", name="Add a model").click()
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
                if view in ("chat", "failed", "going-on"):
                    await expect(tab.last_answer).to_be_visible()
                await take(tab, f"{view}{ending}")
            await compare(tab, up)
            await take(tab, f"compare{ending}")
            await context.close()


async def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        async with Upstream() as up:
            providers = [provider(up.base_url, name="sea", models=["tide-large", "tide-small", "tide-old"])]
            async with Server(Path(folder), providers) as server, server.client(timeout=30) as client:
                paths = await make_sessions(Native(client), up)
                async with async_playwright() as playwright:
                    path = find(playwright.chromium.executable_path)
                    browser = await playwright.chromium.launch(executable_path=path)
                    await take_all(browser, server.url, paths, up)
                    await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
