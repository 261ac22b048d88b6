/** Excerpts of a search are read in passing: marks of Markdown are in the way. */
import { expect, test } from "vitest";
import { withoutMarks } from "../src/markdown/plain";

test.each([
  ["> Note: it **must** be `fast`.", "Note: it must be fast."],
  ["## Hash *joins*, again", "Hash joins, again"],
  ["- see [the docs](https://docs.example/a)", "see the docs"],
  ["| a | b |", " a b "],
])("%s is read as %s", (text, plain) => {
  expect(withoutMarks(text, true)).toBe(plain);
});

test("what is no mark stays", () => {
  const text = "2 * 3 > 5, a-b, x_1 = snake_case(__init__)";
  expect(withoutMarks(text, true)).toBe(text);
});

test("only the start of an excerpt can be the start of a line", () => {
  expect(withoutMarks(" > 5", false)).toBe(" > 5");
});
