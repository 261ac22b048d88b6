import { expect, test, vi } from "vitest";
import { loadMoreSessions, loadSessions, noteSession, query, sessions } from "../src/state/sessions";
import type { ListedSession } from "../src/types";
import { viewOf } from "./samples";

const listed = (changes: Partial<ListedSession>): ListedSession => ({
  ...viewOf(),
  active_run: null,
  needs_approval: false,
  unread: null,
  hit: null,
  ...changes,
});

test("a list that was on its way does not undo what was heard meanwhile", async () => {
  let answer: (response: Response) => void = () => {};
  vi.stubGlobal("fetch", () => new Promise((resolve) => (answer = resolve)));
  sessions.value = [listed({ active_run: "run_1" })];
  const loading = loadSessions();
  noteSession({ id: "s", active_run: null });
  answer(Response.json({ sessions: [listed({ active_run: "run_1", title: "New" })], next: null }));
  await loading;

  expect(sessions.value[0]).toMatchObject({ active_run: null, title: "New" });
});

test("the rest of a list does not come among the hits of a search that was begun meanwhile", async () => {
  const answers: ((response: Response) => void)[] = [];
  const page = (id: string, next: string | null) => Response.json({ sessions: [listed({ id })], next });
  vi.stubGlobal("fetch", () => new Promise((resolve) => answers.push(resolve)));
  const first = loadSessions();
  answers[0]?.(page("a", "more"));
  await first;
  const more = loadMoreSessions();
  query.value = "words";
  const search = loadSessions();
  answers[2]?.(page("hit", null));
  await search;
  answers[1]?.(page("b", null));
  await more;

  expect(sessions.value.map(({ id }) => id)).toEqual(["hit"]);
  query.value = "";
});

test("a session that changes moves to its place, and one that a search does not show stays away", () => {
  const at = (id: string, updated_at: string, more = {}) => listed({ id, created_at: updated_at, updated_at, ...more });
  sessions.value = [at("pinned", "2026-01-01", { pinned: true }), at("b", "2026-01-03"), at("c", "2026-01-02")];
  noteSession(at("c", "2026-01-04"));
  noteSession(at("new", "2026-01-05"));
  expect(sessions.value.map(({ id }) => id)).toEqual(["pinned", "new", "c", "b"]);

  query.value = "words";
  noteSession(at("other", "2026-01-06"));
  noteSession({ id: "b", title: "Changed" });
  query.value = "";
  expect(sessions.value.map(({ id, title }) => [id, title === "Changed"])).toEqual([
    ["pinned", false],
    ["new", false],
    ["c", false],
    ["b", true],
  ]);
});

test("an answer that was overtaken by the feed does not undo it", () => {
  sessions.value = [listed({ title: "Of tides", updated_at: "2026-01-02T00:00:00.000Z" })];
  noteSession(listed({ title: "", updated_at: "2026-01-01T00:00:00.000Z" }));

  expect(sessions.value[0]?.title).toBe("Of tides");
});
