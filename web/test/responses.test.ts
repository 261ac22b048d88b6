import { expect, test } from "vitest";
import { joinedText, shownOf } from "../src/chat/responses";
import { joined } from "../src/chat/segments";
import { Blocks } from "../src/markdown/blocks";
import type { Message } from "../src/types";

const said = (id: string, role: Message["role"], content: string, more: Partial<Message> = {}): Message =>
  ({ id, role, content, parent_id: null, ...more }) as Message;
const asked = (id: string) => said(id, "user", "Go on.", { automatic: true });

test("the parts of a response are one, and the turns between them are nobody's words", () => {
  const messages = [
    said("q", "user", "Why?"),
    said("a", "assistant", "Be"),
    asked("b"),
    said("c", "assistant", "cau"),
    asked("d"),
    said("e", "assistant", "se."),
    said("f", "user", "Thanks"),
  ];
  const shown = shownOf(messages);

  expect(shown.map(({ message, earlier }) => joinedText([...earlier, message]))).toEqual([
    "Why?",
    "Because.",
    "Thanks",
  ]);
  expect(shown[1]).toMatchObject({ message: { id: "e" }, asked: null });
});

test("a turn that nothing came of is kept for the run that answers it", () => {
  const shown = shownOf([said("a", "assistant", "Be"), asked("b")]);

  expect(shown).toMatchObject([{ message: { id: "a" }, asked: { id: "b" } }]);
});

test("a text that is continued is one text, and one after a tool call begins anew", () => {
  const plain = (text: string) => ({ text, tools: [], inputs: [] });
  const steered = { ...plain("Two"), inputs: ["Left!"] };

  expect(joined([[plain("On")], [plain("e"), steered], [plain("Three")]])).toEqual([
    { ...plain("One"), joints: [2] },
    steered,
    plain("Three"),
  ]);
});

test("the block is found in which a text was continued", () => {
  const blocks = new Blocks();
  const text = "One.\n\nTwo\nand more.\n\nThree.\n";
  const tokens = blocks.finish(text);

  expect([...blocks.at([8])]).toEqual([tokens[1]]);
  expect([...blocks.at([])]).toEqual([]);
});

test("footnotes are told from links and marks, and a link may be defined beside them", () => {
  const blocks = new Blocks();
  const tokens = blocks.finish(
    "A claim.[^1] [x][y]\n\n[^1]: Its *source*,\n  and more.\n[^b]: Other.\n[y]: https://example.org\n",
  );

  expect(tokens.map(({ type }) => type)).toEqual(["paragraph", "footnote", "footnote"]);
  expect(tokens[0]).toMatchObject({
    tokens: [{ type: "text" }, { type: "footnoteMark", label: "1" }, {}, { type: "link" }],
  });
  expect(tokens[1]).toMatchObject({ label: "1", tokens: [{ text: "Its " }, { type: "em" }, { text: ", and more." }] });
});
