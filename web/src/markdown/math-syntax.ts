/** Where mathematics stands in Markdown: `$$…$$`, `\[…\]`, `\(…\)`, and `$…$` where it cannot be money. */
import type { TokenizerExtension } from "marked";

const BLOCK_OPENS = /^ {0,3}(\$\$|\\\[)/;
const INLINE_OPENS = /^(?:\$\$|\\[([])/;
const MONEY_OR_MATH = /^\$(?![\s$])([^\n$]{1,500}?)(?<![\s\\])\$(?![\d$])/;

/**
 * What was found out about the end of a text. The lexer asks again at every later place, with a shorter end of the same
 * text: without this it would be looked through each time.
 */
class Findings<Found> {
  #text = "";
  #found: Found | undefined;

  /** What was found in a text of which this one is the end. */
  of(source: string): Found | undefined {
    const isSame = source.length <= this.#text.length && this.#text.slice(this.#text.length - source.length) === source;
    return isSame ? this.#found : undefined;
  }

  note(source: string, found: Found): void {
    this.#text = source;
    this.#found = found;
  }
}

/** A mark of mathematics that is a block of its own. */
class BlockMark {
  readonly #opening: RegExp;
  readonly #closing: RegExp;
  readonly #isUnclosed = new Findings<true>();
  /** How far from the end of a text the next opening stands that is closed. */
  readonly #next = new Findings<number>();

  constructor(opening: string, closing: string) {
    this.#opening = new RegExp(`\\n {0,3}${opening}`, "g");
    this.#closing = new RegExp(`${closing}[ \\t]*(?:\\n|$)`, "g");
  }

  /** Where the block that begins a text ends: its last mark, and what follows it on the line. */
  end(source: string, opening: number): RegExpExecArray | null {
    if (this.#isUnclosed.of(source)) return null;
    this.#closing.lastIndex = opening + 1; // something stands between the marks
    const found = this.#closing.exec(source);
    if (!found) this.#isUnclosed.note(source, true);
    return found;
  }

  /** Where the next line begins that opens a block. */
  next(source: string): number | undefined {
    const known = this.#next.of(source);
    if (known !== undefined && known <= source.length) return known < 0 ? undefined : source.length - known;
    this.#opening.lastIndex = 0;
    const found = this.#opening.exec(source);
    const isClosed = found && this.end(source.slice(found.index + 1), found[0].length - 1);
    this.#next.note(source, isClosed ? source.length - found.index : -1);
    return isClosed ? found.index : undefined;
  }
}

const BLOCK_MARKS = new Map([
  ["$$", new BlockMark("\\$\\$", "\\$\\$")],
  ["\\[", new BlockMark("\\\\\\[", "\\\\\\]")],
]);

const block: TokenizerExtension = {
  name: "mathBlock",
  level: "block",
  start: (source) => {
    const starts = [...BLOCK_MARKS.values()].map((mark) => mark.next(source) ?? source.length);
    return Math.min(...starts);
  },
  tokenizer: (source) => {
    const [opening = "", mark = ""] = BLOCK_OPENS.exec(source) ?? [];
    const found = BLOCK_MARKS.get(mark)?.end(source, opening.length);
    if (!found) return;
    const end = found.index + found[0].length;
    return { type: "mathBlock", raw: source.slice(0, end), text: source.slice(opening.length, found.index).trim() };
  },
};

/** A mark of mathematics within a line. */
class InlineMark {
  readonly #isUnclosed = new Findings<true>();

  readonly #opening: string;
  readonly #closing: string;

  constructor(opening: string, closing: string) {
    this.#opening = opening;
    this.#closing = closing;
  }

  /** The formula that begins a text and is closed on its line: with its marks, and without. */
  closed(source: string): [string, string] | undefined {
    const newline = source.indexOf("\n");
    const line = newline < 0 ? source : source.slice(0, newline);
    if (this.#isUnclosed.of(line)) return;
    const end = line.indexOf(this.#closing, this.#opening.length + 1);
    if (end < 0) return void this.#isUnclosed.note(line, true);
    return [line.slice(0, end + this.#closing.length), line.slice(this.#opening.length, end)];
  }
}

const INLINE_MARKS = new Map([
  ["$$", new InlineMark("$$", "$$")],
  ["\\(", new InlineMark("\\(", "\\)")],
  ["\\[", new InlineMark("\\[", "\\]")],
]);

const inline: TokenizerExtension = {
  name: "math",
  level: "inline",
  start: (source) => /\$|\\[([]/.exec(source)?.index,
  tokenizer: (source) => {
    const [mark = ""] = INLINE_OPENS.exec(source) ?? [];
    const [raw, text] = INLINE_MARKS.get(mark)?.closed(source) ?? MONEY_OR_MATH.exec(source) ?? [];
    return raw === undefined || text === undefined ? undefined : { type: "math", raw, text: text.trim() };
  },
};

export const mathExtensions = [block, inline];
