"""For everyone: axe in every view, phones, 200% zoom, right-to-left text, a screen reader that is not shouted at."""

import pytest
from playwright.async_api import expect

from tests.browser.axe import findings, sideways
from tests.requirements import requirement
from tests.support.upstream import Delta, Hang, Headers, ReasoningDelta, Role, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

RICH = """# A heading

Some **bold** words, `code`, a [link](https://there.example/) and a formula $e = mc^2$.

| moon | tide |
| --- | ---: |
| full | 4.2 m |

- [x] done
- [ ] to do

```python
print("hello")
```

![a picture](https://there.example/picture.png)
"""
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
BOTH_SEEN = pytest.mark.long("each size and each scheme is in another pair")
DIRECTIONS = """[...document.querySelectorAll(".said, .markdown p, .markdown pre")]
    .map((each) => getComputedStyle(each).direction)"""
ARABIC = "يأتي المد ثم يذهب. Holdfast يحفظ كل كلمة."


@requirement("ui.browser-access")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(DESKTOP, "light", id="desktop-light"),
        pytest.param(PHONE, "dark", id="phone-dark"),
        pytest.param(DESKTOP, "dark", id="desktop-dark", marks=BOTH_SEEN),
        pytest.param(PHONE, "light", id="phone-light", marks=BOTH_SEEN),
    ],
)
async def test_axe_finds_nothing_in_any_view(new_tab, up, api, scheme, size):
    """Contrast, names, roles and order: empty, with an answer of every kind, failed, going on; and the other views."""
    tab = await new_tab(color_scheme=scheme, viewport=size, reduced_motion="reduce")
    found = {"empty": await findings(tab)}
    up.enqueue(
        [Headers(), Role(), ReasoningDelta("Hm."), *answer(RICH)[2:]],
        answer("cut", finish="length"),
        [Headers(), Role(), Delta("going on"), Hang()],
    )
    session = await api.new_session(model="up/m")
    run = await api.start(session, "Show me all", "up/m")
    await api.settled(run)
    await tab.open(f"/s/{session}")
    await expect(tab.page.locator(".katex").first).to_be_visible()
    found["chat"] = await findings(tab)
    await api.settled(await api.start(session, "And now cut it off", "up/m"))
    await tab.sees_ending("truncated", "cut")
    found["cut off"] = await findings(tab)
    going_on = await api.start(session, "Go on", "up/m")
    await tab.reads("going on")
    await api.start(session, "Then this", "up/m", if_busy="queue")
    await expect(tab.queued).to_have_count(1)
    found["going on"] = await findings(tab)
    await api.client.post(f"/api/sessions/{session}/stop")
    await expect(tab.live).to_have_count(0)
    for name, path in {
        "settings": "/settings",
        "status": "/status",
        "compare": "/compare",
        "run": f"/runs/{going_on}",
        "lost": "/x",
    }.items():
        await tab.measure("path => { history.pushState(null, '', path); dispatchEvent(new Event('popstate')) }", path)
        await expect(tab.page.locator("main .loading")).to_have_count(0)
        await expect(tab.page.locator("main :is(h1, h2)").first).to_be_visible()
        found[name] = await findings(tab)

    assert {name: [] for name in found} == found


@requirement("ui.browser-access")
async def test_on_a_phone_the_list_is_a_drawer_and_nothing_hangs_over_the_edge(new_tab, up):
    """A wide table and a long line of code scroll inside of themselves."""
    tab = await new_tab(viewport=PHONE, has_touch=True, is_mobile=True)
    wide = RICH + "\n```\n" + "x" * 400 + "\n```\n\n" + "w" * 300 + "\n\n|" + "a column |" * 30 + "\n|" + "---|" * 30
    up.enqueue(answer(wide))
    await tab.box.fill("Something wide")
    await tab.button("Send").tap()
    await tab.sees_ending("completed")
    assert 0 == await sideways(tab)

    await tab.page.locator("main header button").first.tap()
    link = tab.page.locator(".session a", has_text="Something wide").first
    await expect(link).to_be_in_viewport()
    await link.tap()
    await expect(link).not_to_be_in_viewport()
    assert 0 == await sideways(tab)


@requirement("ui.browser-access")
async def test_at_200_percent_nothing_hangs_over_the_edge(new_tab, up, api):
    """Twice the size is half the window: everything is still there, and nobody has to scroll sideways."""
    up.enqueue(answer(RICH))
    session = await api.new_session(model="up/m")
    await api.settled(await api.start(session, "Show me all", "up/m"))
    tab = await new_tab(f"/s/{session}", viewport={"width": 640, "height": 400}, device_scale_factor=2)
    await tab.sees_ending("completed")
    widths = [await sideways(tab)]
    for path in ("/", "/settings", "/status", "/compare"):
        await tab.open(path)
        await expect(tab.page.locator("main :is(h1, h2)").first).to_be_visible()
        widths.append(await sideways(tab))

    assert [0, 0, 0, 0, 0] == widths


@requirement("ui.browser-access")
async def test_right_to_left_text_runs_right_to_left(tab, up):
    """Each paragraph and each message goes by its own first letter; code stays as it is."""
    up.enqueue(answer(f"{ARABIC}\n\nAnd in English.\n\n```\ncode = 1\n```\n"))
    await tab.say(ARABIC)
    await expect(tab.last_answer).to_have_attribute("data-outcome", "completed")

    await tab.finds(["rtl", "rtl", "ltr", "ltr"], DIRECTIONS)
    await expect(tab.page.locator(".said")).to_have_text(ARABIC)


@requirement("ui.browser-access")
async def test_a_screen_reader_is_told_that_it_began_and_how_it_ended(tab, up):
    """A live region that reads out each token cannot be listened to."""
    await tab.measure("""() => {
        window.heard = [];
        new MutationObserver(() => {
            const text = document.querySelector('.chat > [role=status]')?.textContent;
            if (text && window.heard.at(-1) !== text) window.heard.push(text);
        }).observe(document.body, {subtree: true, childList: true, characterData: true});
    }""")
    up.enqueue(answer(*[f"word{n} " for n in range(50)], finish="length"))
    await tab.say("Speak")
    await expect(tab.last_answer).to_have_attribute("data-outcome", "truncated")
    await expect(tab.page.locator(".chat > [role=status]")).to_contain_text("Stopped at the token limit.")

    heard = await tab.measure("window.heard")
    assert len(heard) < 5  # of fifty words
    assert "Stopped at the token limit." == heard[-1]
