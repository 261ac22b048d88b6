import { afterEach, expect, test, vi } from "vitest";
import { type StreamState, Streams } from "../src/connection/streams";
import type { FeedFrame } from "../src/types";
import { Server } from "./server";

function reading() {
  const heard: [string, FeedFrame[]][] = [];
  const states: StreamState[] = [];
  const streams = new Streams({
    events: (session, frames) => heard.push([session, frames]),
    state: (state) => states.push(state),
  });
  return { streams, heard, states };
}

const changed = (n: number): FeedFrame => ({ n, type: "session.changed", title: `Title ${n}` });
const cursors = (query: URLSearchParams | undefined) => query?.getAll("session");

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

test("several sessions are read through one connection, each from its cursor", async () => {
  const server = new Server();
  const { streams, heard } = reading();
  streams.watch("a", "3");
  streams.watch("b", "7:2");
  await vi.waitFor(() => expect(server.opened).toHaveLength(1));
  server.send("b", ["8", changed(8)]);
  await vi.waitFor(() => expect(heard).toEqual([["b", [changed(8)]]]));

  expect(cursors(server.opened[0])).toEqual(["a@3", "b@7:2"]);
});

test("after a break it reads on where it was", async () => {
  const server = new Server();
  const { streams, heard } = reading();
  streams.watch("a", "3");
  await vi.waitFor(() => expect(server.opened).toHaveLength(1));
  server.send("a", ["4", changed(4)], ["4:9", { type: "text.delta", text: "x", run: "run_1", seq: 9 }]);
  await vi.waitFor(() => expect(heard).toHaveLength(1));
  server.cut();
  await vi.waitFor(() => expect(server.opened).toHaveLength(2));

  expect(cursors(server.opened[1])).toEqual(["a@4:9"]);
});

test("a second reader of a session is given all that it asked for, from the start of the run it may be in", async () => {
  const server = new Server();
  const { streams } = reading();
  streams.watch("a", "9:120");
  streams.watch("a", "5");
  await vi.waitFor(() => expect(server.opened).toHaveLength(1));

  expect(cursors(server.opened[0])).toEqual(["a@5"]);
});

test("the list is read through the same connection, and goes on where it was", async () => {
  const server = new Server();
  const { streams, heard } = reading();
  streams.watch("list", "eng_1:3");
  streams.watch("a", "3");
  streams.watch("list", "eng_1:9"); // another tab, which has seen more
  await vi.waitFor(() => expect(server.opened).toHaveLength(1));
  server.send("list", ["eng_1:4", { type: "session.deleted", session_id: "a" }]);
  await vi.waitFor(() => expect(heard.map(([session]) => session)).toEqual(["list"]));
  server.cut();
  await vi.waitFor(() => expect(server.opened).toHaveLength(2));

  expect(server.opened.map((query) => query.get("list"))).toEqual(["eng_1:3", "eng_1:4"]);
  expect(cursors(server.opened[1])).toEqual(["a@3"]);
});

test("a session that was deleted is not asked for again", async () => {
  const server = new Server();
  const { streams, heard } = reading();
  streams.watch("a", "3");
  streams.watch("b", "0");
  await vi.waitFor(() => expect(server.opened).toHaveLength(1));
  server.send("", ["", { type: "session.deleted", session_id: "b" }]);
  await vi.waitFor(() => expect(heard.map(([session]) => session)).toEqual(["b"]));
  server.cut();
  await vi.waitFor(() => expect(server.opened).toHaveLength(2));

  expect(cursors(server.opened[1])).toEqual(["a@3"]);
});

test("what the old stream still brings does not skip what has to be read again", async () => {
  const server = new Server();
  const { streams, heard } = reading();
  streams.watch("a", "3");
  await vi.waitFor(() => expect(server.opened).toHaveLength(1));
  server.send("a", ["4", changed(4)]);
  await vi.waitFor(() => expect(heard).toHaveLength(1));
  server.send("a", ["5", changed(5)]); // on its way
  streams.unwatch("a"); // the page shows a view that was made before both changes
  streams.watch("a", "3");
  await vi.waitFor(() => expect(server.opened).toHaveLength(2));

  expect(cursors(server.opened[1])).toEqual(["a@3"]);
});

test("a page that comes back connects at once if nothing came for longer than the server is ever silent", async () => {
  const server = new Server();
  const { streams, heard } = reading();
  streams.watch("a", "3");
  await vi.waitFor(() => expect(server.opened).toHaveLength(1));
  server.send("a", ["4", changed(4)]);
  await vi.waitFor(() => expect(heard).toHaveLength(1));
  streams.wake();
  vi.spyOn(Date, "now").mockReturnValue(Date.now() + 60_000); // timers stood still, and the clock did not
  streams.wake();
  await vi.waitFor(() => expect(server.opened).toHaveLength(2));

  expect(cursors(server.opened[1])).toEqual(["a@4"]);
});

test("a page that comes back does not wait for an attempt that was made while the network was dead", async () => {
  const server = new Server();
  const answers = fetch;
  const lost = vi.fn((_: string, { signal }: RequestInit) => hanging(signal));
  const { streams } = reading();
  vi.stubGlobal("fetch", lost);
  streams.watch("a", "3");
  await vi.waitFor(() => expect(lost).toHaveBeenCalled());
  vi.stubGlobal("fetch", answers);
  vi.spyOn(Date, "now").mockReturnValue(Date.now() + 5_000);
  streams.wake();
  await vi.waitFor(() => expect(server.opened).toHaveLength(1));

  expect(cursors(server.opened[0])).toEqual(["a@3"]);
});

test("a page that comes back leaves a healthy stream as it is", async () => {
  const server = new Server();
  const { streams, heard } = reading();
  streams.watch("a", "3");
  await vi.waitFor(() => expect(server.opened).toHaveLength(1));
  const clock = vi.spyOn(Date, "now").mockReturnValue(Date.now() + 9_000);
  server.send("a", ["4", changed(4)]);
  await vi.waitFor(() => expect(heard).toHaveLength(1));
  clock.mockReturnValue(Date.now() + 9_000);
  for (let time = 0; time < 5; time++) streams.wake();
  server.send("a", ["5", changed(5)]);
  await vi.waitFor(() => expect(heard).toHaveLength(2));

  expect(server.opened).toHaveLength(1);
});

/** What never answers, and ends only when it is given up. */
function hanging(signal: AbortSignal | null | undefined): Promise<Response> {
  return new Promise((_, fail) => signal?.addEventListener("abort", () => fail(new Error("given up"))));
}
