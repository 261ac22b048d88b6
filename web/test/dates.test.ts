import { expect, test } from "vitest";
import { grouped } from "../src/state/dates";
import { locale, moment } from "../src/words/count";
import { viewOf } from "./samples";

const NOW = new Date(2026, 4, 20, 15, 30);
const at = (date: Date) => ({
  ...viewOf(),
  active_run: null,
  needs_approval: false,
  unread: null,
  hit: null,
  updated_at: date.toISOString(),
});

test.each([
  [new Date(2026, 4, 20, 0, 1), "Today"],
  [new Date(2026, 4, 19, 23, 59), "Yesterday"],
  [new Date(2026, 4, 16, 12), "Previous 7 days"],
  [new Date(2026, 4, 1, 12), "Previous 30 days"],
  [new Date(2026, 1, 3, 12), "February 2026"],
])("a session of %s stands under %s", (date, group) => {
  expect(grouped([at(date)], NOW).map(([label]) => label)).toEqual([group]);
});

test("pinned sessions are a group of their own, and each group keeps its order", () => {
  const [one, two] = [at(new Date(2026, 4, 20, 9)), at(new Date(2026, 4, 20, 8))];
  const pinned = { ...at(new Date(2025, 1, 1)), pinned: true };

  expect(grouped([pinned, one, two], NOW)).toEqual([
    ["Pinned", [pinned]],
    ["Today", [one, two]],
  ]);
});

test("a date in Arabic is kept apart from what stands beside it, and other dates need no marks", () => {
  const told = (tag: string) => {
    locale.value = tag;
    return moment("2026-11-19T08:27:36Z");
  };

  expect(told("ar")).toMatch(/^\u2068.*2026.*\u2069$/);
  expect(told("de")).not.toMatch(/[\u2068\u2069]/);
  locale.value = "en";
});
