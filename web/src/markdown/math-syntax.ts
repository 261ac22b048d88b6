/** Where mathematics stands in Markdown: `$$…$$`, `\[…\]`, `\(…\)`, and `$…$` where it cannot be money. */
import type { TokenizerExtension } from "marked";

const BLOCK = /^ {0,3}(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
const INLINE =
  /^(?:\$\$([^\n]+?)\$\$|\\\(([^\n]+?)\\\)|\\\[([^\n]+?)\\\]|\$(?![\s$])([^\n$]{1,500}?)(?<![\s\\])\$(?![\d$]))/;

const block: TokenizerExtension = {
  name: "mathBlock",
  level: "block",
  start: (source) => /\n {0,3}(?:\$\$|\\\[)/.exec(source)?.index,
  tokenizer: (source) => {
    const found = BLOCK.exec(source);
    return found ? { type: "mathBlock", raw: found[0], text: (found[1] ?? found[2] ?? "").trim() } : undefined;
  },
};

const inline: TokenizerExtension = {
  name: "math",
  level: "inline",
  start: (source) => /\$|\\[([]/.exec(source)?.index,
  tokenizer: (source) => {
    const found = INLINE.exec(source);
    const text = found?.slice(1).find((group) => group !== undefined);
    return found && text ? { type: "math", raw: found[0], text: text.trim() } : undefined;
  },
};

export const mathExtensions = [block, inline];
