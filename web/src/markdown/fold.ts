/** Finds what a model has put between `<details>` and `</details>`. Tags with attributes, and nested ones, stay text. */
import type { Token } from "marked";

export interface Fold {
  index: number;
  summary: string;
  tokens: Token[];
}

type Part = Fold | { index: number; token: Token };

const OPENS = /^\s*<details>\s*(?:<summary>([^<>]*)<\/summary>)?\s*$/i;
/** All of it without a blank line between: one token, whose words are taken as they are. */
const WHOLE = /^\s*<details>\s*<summary>([^<>]*)<\/summary>([^<>]*)<\/details>\s*$/i;
const CLOSES = /^\s*<\/details>\s*$/i;

/** The blocks of a text, with those between an opening and its closing tag as one part. One that is not closed is text. */
export function folded(tokens: Token[]): Part[] {
  const closings = tokens.flatMap((token, index) => (isHtml(token) && CLOSES.test(token.raw) ? [index] : []));
  const parts: Part[] = [];
  let next = 0;
  for (let index = 0; index < tokens.length; index++) {
    const token = tokens[index] as Token;
    const opening = closings.length && isHtml(token) ? OPENS.exec(token.raw) : null;
    while (next < closings.length && (closings[next] ?? 0) <= index) next++;
    const closing = closings[next];
    const [, summary, text = ""] = (isHtml(token) && WHOLE.exec(token.raw)) || [];
    if (summary !== undefined) {
      const words = { type: "text", raw: text, text: text.trim() };
      parts.push({ index, summary: summary.trim(), tokens: [{ type: "paragraph", raw: text, text, tokens: [words] }] });
    } else if (!opening || closing === undefined) {
      parts.push({ index, token });
    } else {
      parts.push({ index, summary: (opening[1] ?? "").trim(), tokens: tokens.slice(index + 1, closing) });
      index = closing;
    }
  }
  return parts;
}

const isHtml = (token: Token): boolean => token.type === "html";
