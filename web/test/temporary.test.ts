import { afterEach, expect, test, vi } from "vitest";
import { wouldLose } from "../src/router";
import { TemporaryChat } from "../src/state/temporary";
import type { RunFrame, Settlement } from "../src/types";
import { COMPLETED, numbered, runOf, text } from "./samples";

vi.stubGlobal("removeEventListener", () => {});

let chat = new TemporaryChat();
afterEach(() => {
  chat.close();
  chat = new TemporaryChat();
});

/** What a run sends, and how its stream ends: whole, or cut off. */
type Script = { frames: RunFrame[]; isCut?: boolean } | { status: number; body: unknown };

/** A server that answers one request after the other, each with the next script. Returns what it was sent. */
function serve(...scripts: Script[]): { messages: string[]; stopped: string[] } {
  const seen = { messages: [] as string[], stopped: [] as string[] };
  let run = 0;
  const running = new Map<string, ReadableStreamDefaultController<Uint8Array>>();
  const open = new Map<string, Script>();
  vi.stubGlobal("fetch", async (path: string, init: RequestInit = {}) => {
    const id = path.split("/")[3] ?? "";
    if (path === "/v1/chat/completions") {
      const script = scripts.shift();
      const { messages } = JSON.parse(String(init.body)) as { messages: { content: string }[] };
      seen.messages.push(messages.map(({ content }) => content).join("|"));
      if (!script || "status" in script) return Response.json(script?.body, { status: script?.status ?? 500 });
      open.set(`run_${++run}`, script);
      return new Response(new ReadableStream(), { headers: { "x-run-id": `run_${run}` } });
    }
    if (path.endsWith("/stop")) {
      seen.stopped.push(id);
      running.get(id)?.enqueue(encoded(settled({ ...COMPLETED, outcome: "stopped", by: "user" })));
      running.get(id)?.close();
      return Response.json(runOf({ id }));
    }
    const script = open.get(id);
    if (!script || "status" in script) return Response.json({}, { status: 404 });
    const frames = [...script.frames];
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        running.set(id, controller);
        init.signal?.addEventListener("abort", () => controller.error(init.signal?.reason));
      },
      pull: (controller) => {
        const frame = frames.shift();
        if (frame) controller.enqueue(encoded(frame));
        else if (script.isCut) controller.error(new TypeError("network"));
        if (frame?.type === "run.settled") controller.close();
      },
    });
    return new Response(body);
  });
  return seen;
}

const encoded = (frame: RunFrame) => new TextEncoder().encode(`data: ${JSON.stringify(frame)}\n\n`);
const settled = (settlement: Settlement): RunFrame => ({ type: "run.settled", settlement, run: "run_1", seq: 99 });
const says = (words: string): Script => ({
  frames: [...numbered([text(words)]), settled({ ...COMPLETED, text: words })],
});
const begins = (words: string): Script => ({ frames: numbered([text(words)]) });
const shown = () => chat.messages.value.map(({ content }) => content);
const ended = () => vi.waitFor(() => expect(chat.isRunning.value).toBe(false));

test("a connection that is lost ends the response as failed, with its text", async () => {
  serve({ frames: numbered([text("Half")]), isCut: true });
  await chat.ask("Why?", "reject");
  await ended();

  expect(shown()).toEqual(["Why?", "Half"]);
  expect(chat.head.value).toMatchObject({ outcome: "failed", partial: true });
});

test("what the server refuses is taken back, and leaves nothing to lose", async () => {
  serve({ status: 429, body: { error: { message: "Spent.", type: "limit", code: "budget_exceeded", param: null } } });

  await expect(chat.ask("Why?", "reject")).rejects.toThrow("Spent.");
  await ended();
  expect(shown()).toEqual([]);
  expect(wouldLose.value()).toBe(false);
});

test("a message that interrupts comes before those that wait", async () => {
  const seen = serve(begins("One"), says("Three"), says("Two"));
  await chat.ask("first", "reject");
  await vi.waitFor(() => expect(chat.live.value?.id).toBe("run_1"));
  await chat.ask("second", "queue");
  await chat.ask("third", "interrupt");
  await vi.waitFor(() => expect(shown()).toEqual(["first", "third", "Three", "second", "Two"]));

  expect(seen.stopped).toEqual(["run_1"]);
  expect(seen.messages).toEqual(["first", "first|third", "first|third|Three|second"]);
});

test("a chat that is left sends nothing more", async () => {
  const seen = serve(begins("One"), says("Two"));
  await chat.ask("first", "reject");
  await chat.ask("second", "queue");
  chat.close();
  await ended();

  expect(seen.messages).toEqual(["first"]);
});
