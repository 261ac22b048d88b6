import type { Token } from "marked";
import { describe, expect, test } from "vitest";
import { Blocks } from "../src/markdown/blocks";
import { decodeEntities } from "../src/markdown/entities";
import { LONGEST_BLOCK, MOST_FORMULAS } from "../src/markdown/limits";

const ANSWER = `# Tides

The *moon* pulls, see [here](https://example.org) and \`code\`.
A second line with **bold** and $x^2$.

- one
- two
  - deeper

1. first
2. second

| a | b |
| - | - |
| 1 | 2 |

\`\`\`python
def tide():

    return 12.4
\`\`\`

> quoted
> more

$$
E = mc^2
$$

---

The end.
`;

/** What a token is, without what a lexer notes for itself. */
const plainly = (tokens: Token[]) => tokens.map(({ type, raw }) => [type, raw.trimEnd()]);

describe("a text that is still being written", () => {
  test("blocks that another one follows are the same objects from then on", () => {
    const blocks = new Blocks();
    const before = blocks.read("# Tides\n\nOne paragraph.\n\nThe next");
    const after = blocks.read("# Tides\n\nOne paragraph.\n\nThe next one.\n\nAnd a last");

    expect(after[0]).toBe(before[0]);
    expect(after[1]).toBe(before[1]);
    expect(after[2]).not.toBe(before[2]);
  });

  test("read character by character it has the blocks that it has when it is read at once", () => {
    const blocks = new Blocks();
    for (let end = 1; end <= ANSWER.length; end++) blocks.read(ANSWER.slice(0, end));

    expect(plainly(blocks.read(ANSWER))).toEqual(plainly(new Blocks().read(ANSWER)));
  });

  test("no character is lost at any moment", () => {
    const blocks = new Blocks();
    const squeezed = (text: string) => text.replace(/\s/g, "");
    for (let end = 1; end <= ANSWER.length; end++) {
      const part = ANSWER.slice(0, end);
      const drawn = blocks.read(part).map(({ raw }) => raw);

      expect(squeezed(drawn.join(""))).toBe(squeezed(part));
    }
  });

  test("a text that is replaced by another is read from its start", () => {
    const blocks = new Blocks();
    blocks.read("# Old\n\nparagraph\n\nlast");

    expect(plainly(blocks.read("New"))).toEqual([["paragraph", "New"]]);
  });

  test("code is code before it is closed", () => {
    const [code] = new Blocks().read("```python\nx = 1\n\ny = ");

    expect(code).toMatchObject({ type: "code", lang: "python", text: "x = 1\n\ny = " });
  });

  test("line breaks of Windows are line breaks", () => {
    expect(plainly(new Blocks().read("a\r\n\r\nb\rc"))).toEqual([
      ["paragraph", "a"],
      ["paragraph", "b\nc"],
    ]);
  });

  test("links that are defined at the end are links from the beginning, once the text is whole", () => {
    const text = "See [the tide][t].\n\nMore.\n\n[t]: https://example.org/tide\n";
    const link = (tokens: Token[]) => JSON.stringify(tokens).includes('"href":"https://example.org/tide"');

    const blocks = new Blocks();
    for (let end = 1; end < text.length; end++) blocks.read(text.slice(0, end));

    expect([link(blocks.read(text)), link(blocks.finish(text))]).toEqual([false, true]);
  });
});

describe("limits", () => {
  test("a block that is too long is cut, and nothing of it is lost", () => {
    const text = "word ".repeat(LONGEST_BLOCK);
    const found = new Blocks().read(text);

    expect(found.length).toBeGreaterThan(1);
    expect(found.map(({ raw }) => raw).join("")).toBe(text);
  });

  test("formulas beyond the limit are text", () => {
    const text = "$x$ and\n\n".repeat(MOST_FORMULAS + 50);
    const formulas = JSON.stringify(new Blocks().read(text)).match(/"type":"math"/g);

    expect(formulas?.length).toBe(MOST_FORMULAS);
  });

  test("lists within lists without an end are shown as they are written", () => {
    expect(new Blocks().read("- ".repeat(500))).toMatchObject([{ type: "text", isPlain: true }]);
  });
});

describe("character references", () => {
  test.each([
    ["&lt;b&gt; &amp; &quot;", '<b> & "'],
    ["&#65;&#x42;", "AB"],
    ["&nosuch; & &#0; &#xD800;", "&nosuch; & \ufffd \ufffd"],
    ["&amp;lt;", "&lt;"],
  ])("%s", (written, read) => {
    expect(decodeEntities(written)).toBe(read);
  });
});
