import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { LiveRun } from "../src/state/live";
import type { RunEvent, RunFrame } from "../src/types";
import { COMPLETED, numbered, runOf, text } from "./samples";

function taken(events: RunEvent[], live = new LiveRun("run_1", "msg_2", "msg_1", "up/m")): LiveRun {
  for (const event of numbered(events)) expect(live.take(event)).toBe(true);
  return live;
}

const shown = (live: LiveRun) =>
  live.segments.map(({ text, tools, inputs }) => [text, tools.map(({ name }) => name), inputs]);

describe("the numbers of events", () => {
  test("an event that comes twice counts once", () => {
    const live = taken([text("a"), text("b")]);
    for (const event of numbered([text("a"), text("b")])) expect(live.take(event)).toBe(true);

    expect(live.text).toBe("ab");
  });

  test("an event after a gap is refused and changes nothing", () => {
    const live = taken([text("a")]);
    const [late] = numbered([text("c")], { after: 2 });

    expect(late && live.take(late)).toBe(false);
    expect([live.text, live.seq]).toEqual(["a", 1]);
  });

  test("a snapshot replaces what came before it, whatever its number is", () => {
    const live = taken([text("a")]);
    for (const event of numbered([{ type: "snapshot", text: "all of it", reasoning: "why" }], { after: 8 }))
      live.take(event);

    expect([live.text, live.reasoning, live.seq]).toEqual(["all of it", "why", 9]);
    expect(shown(live)).toEqual([["all of it", [], []]]);
  });

  test("a run that keeps only its last events begins with the text that came with the session", () => {
    const live = LiveRun.of(runOf({ seq: 200, text: "before " }));
    for (const event of numbered([text("after")], { after: 200 })) expect(live.take(event)).toBe(true);

    expect(live.text).toBe("before after");
  });

  test("an event of a type that this page does not know is counted and ignored", () => {
    const live = taken([text("a")]);
    const unknown = { type: "run.teleported", where: "Mars", run: "run_1", seq: 2 } as unknown as RunFrame;

    expect(live.take(unknown)).toBe(true);
    expect([live.text, live.seq]).toEqual(["a", 2]);
  });
});

describe("what is drawn of an answer", () => {
  test("only the first of several answers", () => {
    const live = taken([text("first"), text("second", 1), { type: "reasoning.delta", text: "other", choice: 1 }]);

    expect([live.text, live.reasoning]).toEqual(["first", ""]);
  });

  test("thinking lasts until text comes", () => {
    const live = taken([{ type: "reasoning.delta", text: "hm" }]);
    const before = live.isThinking;
    for (const event of numbered([text("a")], { after: 1 })) live.take(event);

    expect([before, live.isThinking, live.reasoning, live.text]).toEqual([true, false, "hm", "a"]);
  });

  test("the pieces of a tool call are one call, and its result belongs to it", () => {
    const live = taken([
      { type: "tool.delta", index: 0, id: "call_1", name: "add" },
      { type: "tool.delta", index: 0, arguments: '{"a"' },
      { type: "tool.delta", index: 0, arguments: ":1}" },
      { type: "tool.call", id: "call_1", name: "add", arguments: '{"a":1}' },
      { type: "tool.progress", id: "call_1", message: "half", output: "1\n" },
      { type: "tool.progress", id: "call_1", output: "2\n" },
      { type: "tool.result", id: "call_1", output: "2", is_error: false, seconds: 0.5, cut: false },
    ]);

    expect(live.tools).toEqual([
      {
        id: "call_1",
        name: "add",
        arguments: '{"a":1}',
        progress: "half",
        streamed: "1\n2\n",
        output: "2",
        isError: false,
        isUnfinished: false,
        seconds: 0.5,
        decision: null,
        edited: null,
        startedAt: expect.any(Number),
      },
    ]);
  });

  test("each step of an agent is a segment, with its text, its calls and what a person said after them", () => {
    const live = taken([
      { type: "step.started", step: 1 },
      text("One."),
      { type: "tool.call", id: "call_1", name: "add", arguments: "{}", own: true },
      { type: "tool.result", id: "call_1", output: "2", is_error: false, seconds: null, cut: false },
      { type: "run.steered", id: "st_1", text: "Faster!" },
      { type: "step.finished", step: 1, seconds: 1 },
      { type: "step.started", step: 2 },
      text("Two."),
    ]);

    expect(live.isAgent.value).toBe(true);
    expect(shown(live)).toEqual([
      ["One.", ["add"], ["Faster!"]],
      ["Two.", [], []],
    ]);
    expect(live.text).toBe("One.Two.");
  });

  test("a result that comes in a later step belongs to the call of the earlier one", () => {
    const live = taken([
      { type: "step.started", step: 1 },
      { type: "tool.call", id: "call_1", name: "slow", arguments: "{}" },
      { type: "step.started", step: 2 },
      text("Meanwhile."),
      { type: "tool.result", id: "call_1", output: "late", is_error: true, seconds: 9, cut: false },
    ]);

    expect(live.segments[0]?.tools[0]).toMatchObject({ output: "late", isError: true });
    expect(shown(live)).toEqual([
      ["", ["slow"], []],
      ["Meanwhile.", [], []],
    ]);
  });

  test("a decision is known of the approval and of its call", () => {
    const live = taken([
      { type: "tool.call", id: "call_1", name: "rm", arguments: "{}" },
      {
        type: "approval.requested",
        id: "ap_1",
        tool: "rm",
        arguments: "{}",
        call: "call_1",
        expires_at: null,
        preview: "",
        beginning: "",
      },
      { type: "approval.decided", id: "ap_1", decision: "deny" },
    ]);

    expect([live.questions[0]?.decision, live.tools[0]?.decision]).toEqual(["deny", "deny"]);
  });

  test("what was waited for is not told any more once the answer has begun", () => {
    const waits = ["fetching_weights", "loading_model", "model_busy", "waiting"];
    const live = taken([
      ...waits.map((code): RunEvent => ({ type: "notice", code, message: code })),
      { type: "notice", code: "fallback", message: "Another answers." },
      text("at last"),
    ]);

    expect(live.lastingNotices.map(({ code }) => code)).toEqual(["fallback"]);
  });

  test("a notice may name the model that answers instead", () => {
    const live = taken([{ type: "notice", code: "fallback", message: "Another answers.", model: "up/other" }]);

    expect(live.model).toBe("up/other");
    expect(live.notices).toEqual([{ code: "fallback", message: "Another answers.", at: expect.any(Number) }]);
  });
});

describe("drawing", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test("many events are drawn with one frame", () => {
    const live = taken(Array.from({ length: 100 }, () => text("a ")));
    const before = live.version.value;
    vi.advanceTimersByTime(17);

    expect([before, live.version.value]).toEqual([0, 1]);
  });

  test("what comes while a frame is drawn is drawn with the next", () => {
    const live = taken([text("a")]);
    vi.advanceTimersByTime(17);
    for (const event of numbered([text("b")], { after: 1 })) live.take(event);
    vi.advanceTimersByTime(300);

    expect(live.version.value).toBe(2);
  });

  test("the end is drawn at once", () => {
    const live = taken([]);
    live.end(COMPLETED);

    expect([live.version.value, live.settlement]).toEqual([1, COMPLETED]);
  });
});
