import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { startConnection } from "../src/connection";
import { Transcript } from "../src/state/transcript";
import type { FeedEntry, FeedFrame, OpenSession, RunFrame } from "../src/types";
import { COMPLETED, messageOf, numbered, runOf, text } from "./samples";
import { Server } from "./server";

startConnection();

let server: Server;
let shown: Transcript | null = null;
let sessions = 0;

beforeEach(() => {
  server = new Server();
});

afterEach(() => {
  shown?.close();
  vi.unstubAllGlobals();
});

/** A session that is shown, and whose feed is being read. */
async function open(changes: Partial<OpenSession> = {}): Promise<Transcript> {
  const id = `s${++sessions}`;
  server.has(id, changes);
  shown = new Transcript(id);
  await vi.waitFor(() => expect(cursors().some((cursor) => cursor.startsWith(`${id}@`))).toBe(true));
  return shown;
}

const cursors = () => server.opened.at(-1)?.getAll("session") ?? [];

/** Send what happens, and wait until the last of it has been taken. */
async function happens(transcript: Transcript, frames: FeedFrame[], isTaken: () => void): Promise<void> {
  server.send(transcript.id, ...frames.map((frame): [string, FeedFrame] => [cursorOf(frame), frame]));
  await vi.waitFor(isTaken);
}

const cursorOf = (frame: FeedFrame) => ("n" in frame ? String(frame.n) : "seq" in frame ? `1:${frame.seq}` : "");

const asked = (n: number): FeedEntry => ({ n, type: "message.added", message: messageOf("msg_1", "user", "Why?") });
const began = (n: number, changes: Partial<FeedEntry> = {}): FeedEntry =>
  ({
    n,
    type: "run.started",
    run_id: "run_1",
    message_id: "msg_2",
    parent_id: "msg_1",
    model: "up/m",
    ...changes,
  }) as FeedEntry;
const said = (words: string, after = 0): RunFrame[] => numbered([text(words)], { after });
const answered = (n: number, words: string): FeedEntry => ({
  n,
  type: "message.added",
  message: messageOf("msg_2", "assistant", words, { parent_id: "msg_1", run_id: "run_1" }),
});
const ended = (n: number): FeedEntry => ({
  n,
  type: "run.settled",
  run_id: "run_1",
  message_id: "msg_2",
  outcome: "completed",
  settlement: COMPLETED,
});

const texts = (transcript: Transcript) => transcript.messages.value.map(({ content }) => content);

describe("a turn", () => {
  test("a question, an answer as it is written, and its end", async () => {
    const it = await open();
    await happens(it, [asked(1), began(2), ...said("Be"), ...said("cause", 1)], () =>
      expect(it.live.value?.text).toBe("Because"),
    );
    expect([texts(it), it.isRunning.value]).toEqual([["Why?"], true]);
    await happens(it, [answered(3, "Because"), ended(4)], () => expect(it.isRunning.value).toBe(false));

    expect(texts(it)).toEqual(["Why?", "Because"]);
    expect(it.ended.value).toMatchObject({ runId: "run_1", messageId: "msg_2", settlement: COMPLETED });
    expect(it.endings.value.get("run_1")?.settlement).toEqual(COMPLETED);
  });

  test("entries that come twice count once", async () => {
    const it = await open();
    await happens(it, [asked(1), began(2), ...said("Be")], () => expect(it.live.value?.text).toBe("Be"));
    await happens(it, [asked(1), began(2), ...said("Be"), ...said("!", 1)], () =>
      expect(it.live.value?.text).toBe("Be!"),
    );

    expect(texts(it)).toEqual(["Why?"]);
  });

  test("an event after a gap makes the page look again", async () => {
    const it = await open({ active_run: runOf() });
    const before = server.asked.length;
    await happens(it, said("late", 5), () => expect(server.asked.slice(before)).toContain(`/api/sessions/${it.id}`));

    expect(it.live.value?.text).toBe("");
  });

  test("the end of a run that was deleted makes the page look again", async () => {
    const it = await open({ active_run: runOf() });
    const before = server.asked.length;
    const { settlement: _, ...gone } = ended(1) as Extract<FeedEntry, { type: "run.settled"; settlement?: unknown }>;
    server.has(it.id);
    await happens(it, [gone], () => expect(server.asked.slice(before)).toContain(`/api/sessions/${it.id}`));

    expect([it.isRunning.value, it.ended.value]).toEqual([false, null]);
  });

  test("the end of a run that was over when the view was made, but is only in the events after it", async () => {
    const it = await open({ messages: [messageOf("msg_1", "user", "Why?")], feed: "2" });
    it.noteSent(runOf());
    await happens(it, [answered(3, "Because"), ended(4)], () => expect(it.ended.value).not.toBeNull());

    expect([texts(it), it.isRunning.value]).toEqual([["Why?", "Because"], false]);
    expect(it.ended.value).toMatchObject({ runId: "run_1", messageId: "msg_2", settlement: COMPLETED });
  });

  test("a second answer takes the place of the first and knows its siblings", async () => {
    const it = await open({
      messages: [
        messageOf("msg_1", "user", "Why?"),
        messageOf("msg_0", "assistant", "No.", { parent_id: "msg_1", siblings: ["msg_0"] }),
      ],
    });
    await happens(it, [began(1)], () => expect(texts(it)).toEqual(["Why?"]));
    await happens(it, [answered(2, "Yes."), ended(3)], () => expect(it.isRunning.value).toBe(false));

    expect(it.messages.value.map(({ content, siblings }) => [content, siblings])).toEqual([
      ["Why?", undefined],
      ["Yes.", ["msg_0", "msg_2"]],
    ]);
  });

  test("an answer that was continued is changed where it stands", async () => {
    const it = await open({ messages: [messageOf("msg_1", "user", "Why?"), messageOf("msg_2", "assistant", "Be")] });
    const whole = messageOf("msg_2", "assistant", "Because");
    await happens(it, [{ n: 1, type: "message.changed", message: whole }], () => expect(texts(it)[1]).toBe("Because"));

    expect(texts(it)).toEqual(["Why?", "Because"]);
  });
});

describe("what was sent from here", () => {
  test("it is shown as being sent until the feed tells of it", async () => {
    const it = await open();
    it.send("Why?");
    const before = it.sending.value;
    await happens(it, [asked(1)], () => expect(texts(it)).toEqual(["Why?"]));

    expect([before, it.sending.value]).toEqual(["Why?", null]);
  });

  test("with a picture it is told too: the feed has a reference in place of the data", async () => {
    const it = await open();
    const text = { type: "text", text: "Why?" } as const;
    it.send([text, { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }]);
    const stored = { type: "image_url", image_url: { url: "holdfast-file:0123" } } as const;
    const message = { ...messageOf("msg_1", "user", "Why?"), content: [text, stored] };
    await happens(it, [{ n: 1, type: "message.added", message }], () => expect(it.messages.value).toHaveLength(1));

    expect(it.sending.value).toBeNull();
  });

  test("a message of the same words that was there before is not it", async () => {
    const it = await open({ messages: [messageOf("msg_0", "user", "Why?")] });
    it.send("Why?");

    expect(it.sending.value).toBe("Why?");
  });

  test("it is no longer being sent when it waits in the queue", async () => {
    const it = await open({ active_run: runOf() });
    it.send("And then?");
    const input = [messageOf("msg_3", "user", "And then?")];
    await happens(it, [{ n: 1, type: "run.queued", run_id: "run_2", queue_number: 1, input }], () =>
      expect(it.queued.value).toHaveLength(1),
    );

    expect(it.sending.value).toBeNull();
  });
});

describe("the queue", () => {
  const waits = (n: number, number: number, words: string): FeedEntry => ({
    n,
    type: n === 3 ? "queue.changed" : "run.queued",
    run_id: `run_${number}`,
    queue_number: number,
    input: [messageOf(`msg_${number}`, "user", words)],
  });

  test("messages wait in the order of their numbers, can be changed, and leave when their run begins", async () => {
    const it = await open();
    await happens(it, [waits(1, 2, "second"), waits(2, 1, "first"), waits(3, 2, "changed")], () =>
      expect(it.queued.value.map(({ input }) => input)).toEqual(["first", "changed"]),
    );
    await happens(it, [began(4)], () => expect(it.isRunning.value).toBe(true));

    expect(it.queued.value.map(({ input }) => input)).toEqual(["changed"]);
  });
});

test("a change of the session is taken up, and another branch is loaded", async () => {
  const it = await open();
  await happens(it, [{ n: 1, type: "session.changed", title: "Tides" }], () =>
    expect(it.session.value?.title).toBe("Tides"),
  );
  const before = server.asked.length;
  await happens(it, [{ n: 2, type: "session.changed", head_id: "msg_9" }], () =>
    expect(server.asked.slice(before)).toContain(`/api/sessions/${it.id}`),
  );
});

test("a session that is deleted meanwhile, or was never there, is missing", async () => {
  const it = await open();
  server.send("", ["", { type: "session.deleted", session_id: it.id }]);
  await vi.waitFor(() => expect(it.loading.value).toBe("missing"));
  const other = new Transcript("nowhere");
  await vi.waitFor(() => expect(other.loading.value).toBe("missing"));
  other.close();
});
