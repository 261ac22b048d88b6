/** Footnotes in Markdown: `[^1]` in a text, and `[^1]: what it says` as a block. */
import type { Token, TokenizerExtension } from "marked";

const NOTE = /^ {0,3}\[\^([^\]\s]{1,50})\]:[ \t]*([^\n]*(?:\n+(?: {2,}|\t)[^\n]+)*)(?:\n|$)/;
const MARK = /^\[\^([^\]\s]{1,50})\](?!:)/;

export interface Footnote {
  label: string;
  tokens: Token[];
}

export const footnoteExtensions: TokenizerExtension[] = [
  {
    name: "footnote",
    level: "block",
    tokenizer(source) {
      const [raw, label = "", text = ""] = NOTE.exec(source) ?? [];
      if (raw === undefined) return undefined;
      return { type: "footnote", raw, label, tokens: this.lexer.inline(text.replace(/\n\s+/g, " ")) };
    },
  },
  {
    name: "footnoteMark",
    level: "inline",
    tokenizer(source) {
      const [raw, label] = MARK.exec(source) ?? [];
      return raw === undefined ? undefined : { type: "footnoteMark", raw, label };
    },
  },
];

export const isFootnote = (token: Token): token is Token & Footnote => token.type === "footnote";
