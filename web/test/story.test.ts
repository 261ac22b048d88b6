import { describe, expect, test } from "vitest";
import { densityOf, lastBy, storyOf, Words } from "../src/inspect/story";
import { COMPLETED, numbered, text } from "./samples";

describe("the story of a run", () => {
  test("words that follow one another are one line", () => {
    const events = numbered([
      { type: "run.started", model: "up/m" },
      { type: "reasoning.delta", text: "hm" },
      text("a"),
      text("bc"),
      { type: "tool.delta", index: 0, name: "add", arguments: "{}" },
      text("d"),
      { type: "run.settled", settlement: COMPLETED },
    ]);
    const story = storyOf(events, [0, 10, 20, 30, 40, 50, 60]);

    expect(story.map(({ kind, from, to, first }) => [kind, from, to, first])).toEqual([
      ["start", 0, 0, 0],
      ["thoughts", 10, 10, 1],
      ["words", 20, 30, 2],
      ["tool", 40, 40, 4],
      ["words", 50, 50, 5],
      ["end", 60, 60, 6],
    ]);
    expect(story[2]?.detail).toBe("2 events, 3 characters");
  });

  test("a retry is part of it", () => {
    const events = numbered([{ type: "notice", code: "retry", message: "Trying again in 0.5 s" }, text("at last")]);

    expect(storyOf(events, [0, 600])[0]).toMatchObject({
      kind: "notice",
      label: "Retried",
      detail: "Trying again in 0.5 s",
    });
  });

  test("every event of an agent has a line", () => {
    const events = numbered([
      { type: "step.started", step: 1 },
      { type: "tool.call", id: "c", name: "add", arguments: "{}" },
      {
        type: "approval.requested",
        id: "a",
        tool: "add",
        arguments: "{}",
        call: "c",
        expires_at: null,
        preview: "",
        beginning: "",
      },
      { type: "approval.decided", id: "a", decision: "allow" },
      { type: "tool.progress", id: "c", message: "half" },
      { type: "tool.result", id: "c", output: "2", is_error: true, seconds: 1, cut: false },
      { type: "run.steered", id: "st", text: "Left!" },
      { type: "usage", input_tokens: 1, output_tokens: 2, total_tokens: 3, source: "provider" },
      { type: "step.finished", step: 1, seconds: 2 },
      { type: "snapshot", text: "a", reasoning: "" },
    ]);

    expect(storyOf(events, []).map(({ label }) => label)).toEqual([
      "Step 1",
      "Tool call: add",
      "Waiting for approval",
      "Approved",
      "Tool progress",
      "Tool failed",
      "Message to the agent",
      "Token usage",
      "Step 1 finished",
      "snapshot",
    ]);
  });
});

describe("a replay", () => {
  const events = numbered([{ type: "reasoning.delta", text: "hm" }, text("so "), text("not shown", 1), text("far")]);

  test("any moment of it is the text up to an event, of the first answer", () => {
    const words = new Words(events);

    expect([-1, 0, 1, 2, 3].map((at) => words.upTo(at).text)).toEqual(["", "", "so ", "so ", "so far"]);
    expect(words.upTo(3).thoughts).toBe("hm");
  });

  test("the last event by a time", () => {
    const at = [0, 10, 10, 30];

    expect([-1, 0, 9, 10, 29, 30, 99].map((time) => lastBy(at, time))).toEqual([-1, 0, 0, 2, 2, 3, 3]);
    expect(lastBy([], 5)).toBe(-1);
  });

  test("the density counts words in equal parts of the run", () => {
    expect(densityOf(events, [0, 10, 10, 100], 100, 4)).toEqual([3, 0, 0, 1]);
  });
});
