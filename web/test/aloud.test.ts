/** What is read aloud is what is drawn: nobody wants to hear the marks of Markdown, TeX or code. */
import { expect, test } from "vitest";
import { spoken } from "../src/voice/aloud";

test.each([
  ["## A **bold** [word](https://a.example)\n\nAnd &amp; more.", ["A bold word", "And & more."]],
  ["Use `ls`:\n\n```sh\nls -la\n```\n\nDone.", ["Use ls:", "Code.", "Done."]],
  ["1. Do this:\n\n   ```\n   x = 1\n   ```\n2. Then that.", ["Do this:", "Code.", "Then that."]],
  [
    "So $E = mc^2$ and\n\n$$\\frac{a}{b}$$\n\nfollow. It costs $5 or $6.",
    ["So formula and", "formula.", "follow.", "It costs $5 or $6."],
  ],
  ["| a | b |\n| --- | --- |\n| $x$ | 2 |", ["a, b", "formula, 2"]],
  ["- one\n  - two\n- three", ["one", "two", "three"]],
])("%j is read as %j", (text, sentences) => {
  expect(spoken(text)).toEqual(sentences);
});
