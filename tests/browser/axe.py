"""What axe says of a tab, and whether anything of it hangs over the edge."""

from pathlib import Path

from tests.browser.tab import Tab

AXE = Path(__file__).parents[1] / "e2e" / "node" / "node_modules" / "axe-core" / "axe.min.js"


async def findings(tab: Tab) -> list[str]:
    """What axe finds. It runs outside of the page's own world, because the page's policy lets in no script."""
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
