import { expect, test, vi } from "vitest";
import { loadSessions, noteSession, sessions } from "../src/state/sessions";
import type { ListedSession } from "../src/types";
import { viewOf } from "./samples";

const listed = (changes: Partial<ListedSession>): ListedSession => ({
  ...viewOf(),
  active_run: null,
  needs_approval: false,
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
