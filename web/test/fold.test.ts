import { describe, expect, test } from "vitest";
import { Blocks } from "../src/markdown/blocks";
import { folded } from "../src/markdown/fold";

const parts = (text: string) =>
  folded(new Blocks().finish(text)).map((part) => ("token" in part ? part.token.type : part.summary));

describe("details", () => {
  test("what stands between the tags is folded, with its summary", () => {
    expect(parts("Before\n\n<details>\n<summary>More</summary>\n\n- one\n- two\n\n</details>\n\nAfter")).toEqual([
      "paragraph",
      "More",
      "paragraph",
    ]);
  });

  test("all of it in one line is folded too", () => {
    const [fold] = folded(new Blocks().finish("<details><summary>More</summary>words</details>"));
    expect(fold).toMatchObject({ summary: "More", tokens: [{ type: "paragraph", tokens: [{ text: "words" }] }] });
  });

  test("an opening tag without a closing one, or with attributes, stays text", () => {
    expect(parts("<details>\n\nText")).toContain("html");
    expect(parts("<details ontoggle=x()>\n\nText\n\n</details>")).toContain("html");
  });

  test("very many tags take no time", () => {
    const many = "<details>\n\n".repeat(20_000);
    expect(folded(new Blocks().finish(many)).length).toBeGreaterThan(0);
  });
});
