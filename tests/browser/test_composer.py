"""What goes with a message: pictures, the model, instructions and parameters; and what was typed and not sent."""

import asyncio
import base64
import json
import struct
import zlib

import pytest
from playwright.async_api import Route, expect

from tests.browser.tab import Tab, becomes
from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Cut, Delta, Done, Finish, Headers, Role, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")


def png(red: int) -> bytes:
    """A picture of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(bytes([0, red, 0, 0]))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


def data_url(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode()


PIXEL = """(image) => {
    const pen = document.createElement("canvas").getContext("2d");
    pen.drawImage(image, 0, 0);
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
}"""
BRING = """([way, kind, encoded]) => {
    const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
    const brought = new DataTransfer();
    brought.items.add(new File([bytes], "brought", {type: kind}));
    const options = {bubbles: true, cancelable: true};
    document.querySelector("#composer").dispatchEvent(way === "paste"
        ? new ClipboardEvent("paste", {...options, clipboardData: brought})
        : new DragEvent("drop", {...options, dataTransfer: brought}));
}"""


# Begins a call that is made as soon as the page is drawn, before the browser has drawn a frame of it.
WHEN_DRAWN = """
const whenDrawn = (then) => new MutationObserver((_, observer) => {
    if (!document.querySelector("#composer")) return;
    observer.disconnect();
    then();
}).observe(document, {childList: true, subtree: true});
whenDrawn(() =>"""


async def bring(tab: Tab, way: str, content: bytes, kind: str = "image/png") -> None:
    """Paste a file, drop it, or choose it from the disk."""
    if way == "choose":
        async with tab.page.expect_file_chooser() as choosing:
            await tab.press("Attach files")
        await (await choosing.value).set_files([{"name": "chosen", "mimeType": kind, "buffer": content}])
    else:
        await tab.measure(BRING, [way, kind, base64.b64encode(content).decode()])


@requirement("ui.browser-composer")
@pytest.mark.parametrize("way", ["paste", "drop", "choose"])
async def test_a_picture_reaches_the_model_and_stays_in_the_session(tab, up, way):
    """The very bytes that were brought; one that was taken away again is not sent."""
    up.enqueue(answer("A red dot."))
    await bring(tab, way, png(1))
    await bring(tab, way, png(255))
    await expect(tab.page.locator(".composer .attached img")).to_have_count(2)
    await tab.press("Remove attachment 1")
    await expect(tab.page.locator(".composer .attached img")).to_have_count(1)
    await tab.say("What is this?")
    await tab.sees_ending("completed", "A red dot.")
    shown = tab.page.locator(".message.user img")
    await expect(shown).to_have_js_property("naturalWidth", 1)
    await expect(tab.page.locator(".composer .attached")).to_have_count(0)
    await tab.page.reload()
    await expect(shown).to_have_js_property("naturalWidth", 1)

    assert [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": data_url(png(255))}},
    ] == up.requests[-1].body["messages"][-1]["content"]
    await becomes([255, 0, 0], lambda: shown.evaluate(PIXEL))


@requirement("ui.browser-composer")
@pytest.mark.parametrize("way", ["paste", "drop"])
async def test_a_file_that_no_model_can_read_is_refused_and_says_why(tab, up, way):
    """What is sent all the same would be an error of the model, or nothing at all."""
    asked = len(up.requests)
    await bring(tab, way, b"PK\x03\x04 an archive", "application/zip")
    await expect(tab.page.get_by_text("“brought” is a ZIP archive or an Office document.")).to_be_visible()
    await expect(tab.page.locator(".composer .attached")).to_have_count(0)
    await expect(tab.button("Send")).to_be_disabled()
    await tab.box.press("Enter")

    await expect(tab.messages).to_have_count(0)
    assert asked == len(up.requests)


# the model


@requirement("ui.browser-composer")
async def test_a_model_is_chosen_with_the_keyboard_and_answers(tab, up):
    """From the box to the list and back: letters, arrows, Enter. Esc leaves the model as it was."""
    keys, picker = tab.page.keyboard, tab.page.get_by_role("dialog", name="Model")
    await expect(tab.box).to_be_focused()
    await keys.press("Tab")
    await keys.press("Tab")
    button = tab.page.locator(".model-button")
    await expect(button).to_be_focused()
    await expect(button.locator(".name")).to_have_text("up/m")
    await keys.press("Enter")
    await expect(picker.get_by_role("combobox")).to_be_focused()
    await keys.type("hostile")
    await keys.press("Escape")
    await expect(picker).to_have_count(0)
    await expect(button).to_be_focused()
    await expect(button.locator(".name")).to_have_text("up/m")

    await keys.press("Enter")
    await expect(picker.get_by_role("combobox")).to_be_focused()
    await keys.type("up/ o")
    options = picker.get_by_role("option")
    await expect(options).to_have_text(["up/other", "up/hostile"])
    await expect(options.nth(0)).to_have_attribute("aria-selected", "true")
    await keys.press("ArrowDown")
    await expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    await keys.press("ArrowDown")
    await expect(options.nth(0)).to_have_attribute("aria-selected", "true")
    await expect(picker.get_by_role("combobox")).to_have_attribute("aria-activedescendant", "model-0")
    await keys.press("Enter")
    await expect(picker).to_have_count(0)
    await expect(button).to_be_focused()
    await expect(button).to_contain_text("up/other")
    up.enqueue(answer("Another voice."))
    await tab.say("Who is there?")
    await tab.sees_ending("completed", "Another voice.")

    assert "other" == up.requests[-1].body["model"]


# Closes a dialog and presses what has the focus then, before the browser has drawn a frame.
AGAIN_AT_ONCE = """async (close) => {
    const dialog = document.querySelector("dialog[open]");
    if (close === "Esc") dialog.requestClose();
    else dialog.querySelector("button[aria-label=Close]").click();
    await null;
    document.activeElement.click();
}"""


@requirement("ui.browser-composer")
@pytest.mark.parametrize("close", ["Esc", "button"])
async def test_the_models_open_again_right_after_they_were_closed(tab, close):
    """The browser tells of a dialog that was closed a frame later. What is pressed until then is not for nobody."""
    await tab.page.locator(".model-button").press("Enter")
    await expect(tab.page.get_by_role("combobox")).to_be_focused()
    await tab.measure(AGAIN_AT_ONCE, close)
    await tab.measure("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    await expect(tab.page.get_by_role("combobox")).to_be_focused()


@requirement("ui.browser-composer")
async def test_a_letter_typed_right_after_the_models_were_opened_is_in_their_search(tab):
    """The list is there with the key that opens it, not a frame later."""
    await expect(tab.page.locator(".model-button .name")).to_contain_text("/")
    await tab.measure("""async () => {
        document.querySelector(".model-button").click();
        await null;
        document.execCommand("insertText", false, "o");
    }""")
    await tab.page.keyboard.type("ther")

    await expect(tab.page.get_by_role("combobox")).to_have_value("other")


@requirement("ui.browser-composer")
async def test_enter_right_after_a_letter_takes_the_model_that_is_found(tab):
    """The mark was set a frame after the list was drawn: Enter took no model, or another one than was marked."""
    await choose_model(tab, "up/paced")
    await tab.page.locator(".model-button").click()
    await expect(tab.page.get_by_role("option").nth(3)).to_have_attribute("aria-selected", "true")
    await tab.measure("""async () => {
        document.execCommand("insertText", false, "hos");
        await null;
        const enter = new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true});
        document.activeElement.dispatchEvent(enter);
    }""")

    await expect(tab.page.locator(".model-button .name")).to_have_text("up/hostile")


@requirement("ui.browser-composer")
async def test_a_list_of_models_that_comes_late_does_not_move_the_choice(tab):
    """It is asked for anew whenever it is opened, and Enter takes what the arrows have marked by then."""
    asked, come = asyncio.Event(), asyncio.Event()

    async def late(route):
        asked.set()
        await come.wait()
        await route.continue_()

    await expect(tab.page.locator(".model-button .name")).to_contain_text("/")
    await tab.page.route("**/api/models", late)
    await tab.page.locator(".model-button").click()
    await tab.page.get_by_role("combobox").fill("up/ o")
    options = tab.page.get_by_role("option")
    await expect(options).to_have_text(["up/other", "up/hostile"])
    await tab.page.keyboard.press("ArrowDown")
    await expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    await asked.wait()
    async with tab.page.expect_response("**/api/models"):
        come.set()
    await tab.measure("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await tab.page.keyboard.press("Enter")

    await expect(tab.page.locator(".model-button .name")).to_have_text("up/hostile")


@requirement("ui.browser-composer")
async def test_a_session_keeps_its_model_and_a_new_one_begins_with_the_last_chosen(tab, up, api):
    """Also after a reload; and another session has the model that it had."""
    other = await api.new_session(model="up/m")
    await choose_model(tab, "up/other")
    up.enqueue(answer("One."))
    await tab.say("Go")
    await tab.sees_ending("completed", "One.")
    button = tab.page.locator(".model-button .name")
    await tab.page.reload()
    await expect(button).to_have_text("up/other")
    await tab.open(f"/s/{other}")
    await expect(button).to_have_text("up/m")
    await tab.open("/")
    await expect(button).to_have_text("up/other")


@requirement("model.demo-marked", "ui.browser-composer")
async def test_demo_models_are_marked_and_shown_only_alone(new_tab, up, tmp_path):
    """A newcomer must not take a script for what Holdfast can do; beside a real model they are only in the way."""
    scripted = {"name": "scripted", "dialect": "scripted"}
    async with Server(tmp_path / "alone", [scripted]) as alone:
        tab = await new_tab(url=alone.url)
        await expect(tab.page.locator(".model-button")).to_contain_text("demo")
        await tab.page.locator(".model-button").click()
        await expect(tab.page.get_by_role("option").filter(has_text="echo").locator(".demo-mark")).to_have_text("demo")
    async with Server(tmp_path / "beside", [provider(up.base_url), scripted]) as beside:
        tab = await new_tab(url=beside.url)
        await tab.page.locator(".model-button").click()

        await expect(tab.page.get_by_role("option")).to_have_text(["up/m"])
        await expect(tab.page.locator(".demo-mark")).to_have_count(0)


async def choose_model(tab: Tab, model: str) -> None:
    await tab.page.locator(".model-button").click()
    await tab.page.get_by_role("combobox").fill(model)
    await tab.page.get_by_role("combobox").press("Enter")
    await expect(tab.page.get_by_role("dialog")).to_have_count(0)


@requirement("ui.browser-composer")
async def test_what_failed_is_answered_by_another_model(tab, up):
    """One model's failure is not the end of the question; the failed answer stays as a version of it."""
    up.enqueue([Headers(), Role(), Delta("Half"), Finish("length"), Done()], answer("Whole."))
    await choose_model(tab, "up/m")
    await tab.say("Go")
    await tab.sees_ending("truncated", "Half")
    await tab.press("Try another model")
    await tab.page.get_by_role("combobox").fill("up/other")
    await tab.page.get_by_role("combobox").press("Enter")

    await tab.sees_ending("completed", "Whole.")
    assert ["m", "other"] == [request.body["model"] for request in up.requests[-2:]]
    assert ["Go"] == [said["content"] for said in up.requests[-1].body["messages"]]
    await expect(tab.last_answer.get_by_role("group", name="Versions")).to_contain_text("2/2")


# instructions and parameters


@requirement("ui.browser-composer")
@pytest.mark.parametrize("when", ["before the first message", "in a session"])
async def test_instructions_and_parameters_reach_the_model(tab, up, when):
    """With every message from then on, after a reload too; and they can be taken back."""
    if when == "in a session":
        up.enqueue(answer("Before that."))
        await tab.say("Before")
        await tab.sees_ending("completed", "Before that.")
    up.enqueue(answer("One."), answer("Two."))
    await set_up(tab, "Be brief.\nBe kind.", {"Temperature": "0.3", "Max tokens": "77"}, '{"seed": 7}')
    await tab.say("Go")
    await tab.sees_ending("completed", "One.")
    first = up.requests[-1].body
    await tab.page.reload()
    await set_up(tab, "", {"Temperature": "", "Max tokens": ""}, '{"seed": 8}')
    await tab.say("Again")
    await tab.sees_ending("completed", "Two.")
    second = up.requests[-1].body

    assert {"role": "system", "content": "Be brief.\nBe kind."} == first["messages"][0]
    assert (0.3, 77, 7) == (first["temperature"], first["max_tokens"], first["seed"])
    assert "user" == second["messages"][0]["role"]
    assert 8 == second["seed"]
    assert not {"temperature", "max_tokens"} & second.keys()


@requirement("ui.browser-composer")
async def test_a_message_does_not_overtake_the_change_before_it(tab, up, api):
    """A model is chosen and a message is sent at once. The message goes to that model, even if the change is slow."""
    up.enqueue(answer("One."))
    confirm = asyncio.Event()

    async def hold(route):
        if "PATCH" == route.request.method:
            await confirm.wait()
        await route.continue_()

    await tab.open(f"/s/{await api.new_session(model='up/m')}")
    await tab.page.route("**/api/sessions/*", hold)
    await choose_model(tab, "up/other")
    await tab.say("Go")
    await expect(tab.page.get_by_role("log", name="Messages").get_by_text("Go", exact=True)).to_be_visible()
    confirm.set()
    await tab.sees_ending("completed", "One.")

    assert "other" == up.requests[-1].body["model"]


@requirement("ui.browser-composer")
async def test_settings_that_the_server_refuses_stay_in_the_dialog(tab, api):
    """They are not lost, and the reason stands beside them."""
    refusal = {"error": {"message": "Not these.", "type": "invalid_request_error", "code": "invalid", "param": None}}

    async def refuse(route):
        if "PATCH" == route.request.method:
            await route.fulfill(status=400, content_type="application/json", body=json.dumps(refusal))
        else:
            await route.continue_()

    await tab.open(f"/s/{await api.new_session(model='up/m')}")
    await tab.page.route("**/api/sessions/*", refuse)
    await tab.press("Chat settings")
    dialog = tab.page.get_by_role("dialog")
    await dialog.get_by_label("System prompt").fill("Be brief.")
    await dialog.get_by_role("button", name="Save").click()

    await expect(dialog.get_by_role("alert")).to_have_text("Not these.")
    await expect(dialog.get_by_label("System prompt")).to_have_value("Be brief.")


@requirement("legs.chosen")
async def test_a_chat_can_be_told_to_continue_by_itself(tab, up, api):
    """The switch shows what will happen, and only another choice than the usual one is kept."""
    session_id = await api.new_session(model="up/m")
    await tab.open(f"/s/{session_id}")
    for wanted, kept in ((True, "continue"), (False, None)):
        await tab.press("Chat settings")
        dialog = tab.page.get_by_role("dialog")
        switch = dialog.get_by_role("checkbox", name="Continue by itself if a response breaks off")
        await expect(switch).to_be_checked(checked=not wanted)
        await switch.set_checked(wanted)
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog).to_have_count(0)
        assert kept == (await api.session(session_id))["on_break"]


@requirement("legs.told")
async def test_a_response_of_two_calls_says_so_in_a_quiet_line_now_and_later(tab, up, api):
    """Whoever reads it sees one response, and that it was not written in one go."""
    session_id = await api.new_session(model="up/m", on_break="continue")
    begin = [Headers(), Role(), Delta("The keeper counted "), Cut()]
    up.enqueue(begin, answer("The keeper counted ", "the tides."))
    await tab.open(f"/s/{session_id}")
    await tab.say("And then?")
    for _ in range(2):
        await tab.sees_ending("completed", "The keeper counted the tides.")
        await expect(tab.last_answer.get_by_text("The response broke off, and up/m went on with it.")).to_be_visible()
        await tab.page.reload()


@requirement("ui.browser-composer")
async def test_parameters_that_are_no_json_are_not_saved_and_say_so(tab, up):
    """What was typed is still there to be mended."""
    up.enqueue(answer("One."))
    await tab.press("Chat settings")
    dialog = tab.page.get_by_role("dialog")
    for wrong in ("{seed: 7}", "[7]"):
        await dialog.get_by_label("Additional parameters (JSON)").fill(wrong)
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog.get_by_role("alert")).not_to_have_text("")
        await expect(dialog.get_by_label("Additional parameters (JSON)")).to_have_value(wrong)
    await tab.page.keyboard.press("Escape")
    await tab.press("Discard")
    await expect(dialog).to_have_count(0)
    await tab.say("Go")
    await tab.sees_ending("completed", "One.")

    assert "seed" not in up.requests[-1].body


async def set_up(tab: Tab, instructions: str, numbers: dict[str, str], more: str) -> None:
    await tab.press("Chat settings")
    dialog = tab.page.get_by_role("dialog")
    await dialog.get_by_label("System prompt").fill(instructions)
    for label, value in numbers.items():
        await dialog.get_by_label(label).fill(value)
    await dialog.get_by_label("Additional parameters (JSON)").fill(more)
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_have_count(0)


# drafts


@requirement("ui.browser-composer")
async def test_what_was_typed_is_kept_for_each_session(tab, up, api):
    """Across other sessions, a new chat and a reload; what was sent is gone, and no draft is in another's place."""
    up.enqueue(answer("One."))
    one, two = await api.new_session(model="up/m"), await api.new_session(model="up/m")
    drafts = {f"/s/{one}": "For the first\nin two lines", f"/s/{two}": "للثانية", "/": "For a new one"}
    for path, text in drafts.items():
        await tab.open(path)
        await tab.box.fill(text)
    await tab.page.reload()
    for path, text in drafts.items():
        await tab.measure("path => { history.pushState(null, '', path); dispatchEvent(new Event('popstate')) }", path)
        await expect(tab.box).to_have_value(text)
    await tab.open(f"/s/{two}")
    await tab.box.press("Enter")
    await tab.sees_ending("completed", "One.")
    await tab.page.reload()
    await tab.sees_ending("completed", "One.")

    await expect(tab.box).to_have_value("")
    await tab.transcript_is(["للثانية", "One."])
    await tab.open(f"/s/{one}")
    await expect(tab.box).to_have_value(drafts[f"/s/{one}"])


@requirement("ui.browser-composer")
async def test_a_first_message_that_is_refused_is_still_there_to_be_sent(tab, up):
    """The session was made and the message was not taken: it stands in that session's box, not nowhere."""
    refusal = {"error": {"message": "Not now.", "type": "server_error", "code": "shutting_down", "param": None}}

    async def refuse(route):
        await route.fulfill(status=503, content_type="application/json", body=json.dumps(refusal))

    await tab.page.route("**/api/sessions/*/runs", refuse)
    await bring(tab, "paste", png(7))
    await expect(tab.page.locator(".composer .attached img")).to_have_count(1)
    await tab.say("A long first message")
    await expect(tab.page.get_by_text("Not now.")).to_be_visible()
    await expect(tab.page).to_have_url(tab.page.url.partition("/s/")[0] + f"/s/{tab.session_id}")

    await expect(tab.box).to_have_value("A long first message")
    await expect(tab.page.locator(".composer .attached img")).to_have_count(1)
    await tab.page.unroute("**/api/sessions/*/runs")
    up.enqueue(answer("At last."))
    await tab.box.press("Enter")
    await tab.sees_ending("completed", "At last.")
    await tab.transcript_is(["A long first message", "At last."])
    assert data_url(png(7)) == up.requests[-1].body["messages"][-1]["content"][1]["image_url"]["url"]


@requirement("ui.browser-composer")
async def test_a_first_message_is_seen_and_kept_while_its_chat_is_made(tab, up):
    """On a slow network that takes seconds. A page that is closed meanwhile has the text again when it is opened."""
    held: list[Route] = []
    await tab.page.route("**/api/sessions", lambda route: held.append(route))
    await tab.say("A long first message")
    await expect(tab.page.locator(".message.is-sending")).to_contain_text("A long first message")
    await expect(tab.box).to_have_value("")
    await becomes(True, lambda: asyncio.sleep(0, bool(held)))
    await held[0].abort()
    await tab.page.unroute_all()
    await tab.page.goto("about:blank")
    await tab.open("/")
    await expect(tab.box).to_have_value("A long first message")
    up.enqueue(answer("At last."))
    await tab.box.press("Enter")

    await tab.sees_ending("completed", "At last.")
    await expect(tab.box).to_have_value("")
    await tab.open("/")
    await expect(tab.box).to_have_value("")


@requirement("ui.browser-composer")
async def test_what_is_typed_while_a_chat_is_made_is_in_its_box(tab, up):
    """The box of a new chat is drawn anew when the chat is there: what was typed meanwhile was gone from it."""
    made = asyncio.Event()

    async def hold(route: Route) -> None:
        await made.wait()
        await route.continue_()

    await tab.page.route("**/api/sessions", hold)
    up.enqueue(answer("One."))
    await tab.say("First")
    await expect(tab.page.locator(".message.is-sending")).to_contain_text("First")
    await tab.box.fill("And then this")
    made.set()
    await tab.sees_ending("completed", "One.")

    await expect(tab.box).to_have_value("And then this")
    await tab.open("/")
    await expect(tab.box).to_have_value("")


@requirement("ui.browser-everyday")
async def test_the_wheel_over_the_message_box_scrolls_the_chat(new_tab, api, up):
    """The pointer rests where one writes. A long draft scrolls by itself."""
    up.enqueue(answer("A line.\n\n" * 100 + "The end."))
    session = await api.new_session(model="up/m")
    await api.settled(await api.start(session, "Go", "up/m"))
    tab = await new_tab(f"/s/{session}", viewport={"width": 1280, "height": 800})
    end = tab.page.get_by_text("The end.", exact=True)
    await expect(end).to_be_in_viewport()
    await tab.box.hover()
    await tab.page.mouse.wheel(0, -600)
    await expect(end).not_to_be_in_viewport()
    await tab.page.mouse.wheel(0, 2000)
    await expect(end).to_be_in_viewport()
    await tab.page.mouse.wheel(0, -2000)
    await expect(end).not_to_be_in_viewport()
    await tab.box.fill("A line of the draft.\n" * 100)
    await tab.measure("document.querySelector('#composer').scrollTo(0, 0)")
    await tab.page.mouse.wheel(0, 2000)

    await tab.finds(True, "document.querySelector('#composer').scrollTop > 1000")
    await expect(end).not_to_be_in_viewport()
