"""What axe says of a tab, and whether anything of it hangs over the edge."""

from pathlib import Path

from tests.browser.tab import Tab

AXE = Path(__file__).parents[1] / "e2e" / "node_modules" / "axe-core" / "axe.min.js"
# What ends by itself has ended. Dots that go on as long as an answer is awaited do not count.
STILL = """() => Promise.allSettled(document.getAnimations()
    .filter((each) => each.effect.getComputedTiming().endTime < 1e6)
    .map((each) => each.finished)).then(() => null)"""


async def findings(tab: Tab) -> list[str]:
    """What axe finds when nothing moves any more: a colour that fades in has little contrast.

    It runs outside of the page's own world, because the page's policy lets in no script.
    """
    await tab.measure(STILL)
    session = await tab.page.context.new_cdp_session(tab.page)
    tree = await session.send("Page.getFrameTree")
    world = await session.send(
        "Page.createIsolatedWorld", {"frameId": tree["frameTree"]["frame"]["id"], "worldName": "axe"}
    )
    place = {"contextId": world["executionContextId"], "awaitPromise": True, "returnByValue": True}
    await session.send("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8"), **place})
    found = await session.send("Runtime.evaluate", {"expression": "axe.run()", **place})
    await session.detach()
    violations = found["result"]["value"]["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in violations for node in each["nodes"]]


async def sideways(tab: Tab) -> int:
    """How many pixels of the page lie to the side of its window."""
    return int(await tab.measure("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


_BEYOND = """() => {
    const scrolls = (element) => element.matches(".table-place, .tabs, pre");
    const isShown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    const clipped = (element) => element.closest(".sidebar, [hidden], [inert], .visually-hidden, thead");
    const within = (element) => element && (scrolls(element) || within(element.parentElement));
    return [...document.querySelectorAll("main *, dialog[open] *")]
        .filter((element) => !element.children.length && isShown(element) && !clipped(element) && !within(element))
        .filter((element) => {
            const { left, right, width } = element.getBoundingClientRect();
            return width > 0 && (left < -1 || right > innerWidth + 1);
        })
        .map((element) => element.outerHTML.slice(0, 200));
}"""


async def beyond(tab: Tab) -> list[str]:
    """What of a view or a dialog lies beyond the edge of the window, and cannot be scrolled to."""
    return [str(each) for each in await tab.measure(_BEYOND)]
