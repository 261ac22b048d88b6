/**
 * Markdown that is still being written, cut into blocks.
 *
 * A block that another one follows never changes again. So only the last one is read anew when text arrives, and what
 * an answer costs to draw does not grow with its length.
 */
import { Marked, type Token, type Tokens } from "marked";
import { mathExtensions } from "./math-syntax";

const marked = new Marked({ gfm: true, extensions: mathExtensions });

/** Longer than any block that a person reads; regular expressions are not let loose on more. */
const LONGEST_BLOCK = 200_000;
const OPEN_FENCE = /^ {0,3}(`{3,}|~{3,})([^\n]*)(?:\n|$)/;

export class Blocks {
  /** What has been read so far, with line breaks as Markdown counts them. */
  #source = "";
  /** Where the last block begins. */
  #settledTo = 0;
  #settled: Token[] = [];
  #hasDefinitions = false;

  /** Return the blocks of a text. Blocks that have not changed are the same objects as before. */
  read(text: string): Token[] {
    const source = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    if (!source.startsWith(this.#source.slice(0, this.#settledTo))) this.#restart();
    this.#source = source;
    const last = this.#lex(source.slice(this.#settledTo));
    const keep = lastBlock(last);
    for (const token of last.slice(0, keep)) {
      this.#settledTo += token.raw.length;
      if (token.type === "def") this.#hasDefinitions = true;
      this.#settled.push(token);
    }
    return [...this.#settled, ...last.slice(keep)].filter(({ type }) => type !== "space" && type !== "def");
  }

  /** Read a text that is whole. Links that are defined at its end are links from its beginning. */
  finish(text: string): Token[] {
    const blocks = this.read(text);
    if (!this.#hasDefinitions) return blocks;
    return this.#lex(this.#source).filter(({ type }) => type !== "space" && type !== "def");
  }

  #restart(): void {
    this.#settledTo = 0;
    this.#settled = [];
    this.#hasDefinitions = false;
  }

  #lex(source: string): Token[] {
    const fence = OPEN_FENCE.exec(source);
    if (fence && !closes(source, fence[1]!)) return [openCode(source, fence)];
    if (source.length > LONGEST_BLOCK) return [plain(source)];
    try {
      return marked.lexer(source).map((token) => (isTooDeep(token) ? plain(token.raw) : token));
    } catch {
      return [plain(source)]; // a text that the lexer gives up on is still a text
    }
  }
}

/** Deeper than anything that a person reads. What goes further would be drawn until the stack is full. */
const DEEPEST = 24;

function isTooDeep(token: Token): boolean {
  let level: Token[] = [token];
  for (let depth = 0; level.length; depth++) {
    if (depth > DEEPEST) return true;
    level = level.flatMap(within);
  }
  return false;
}

function within(token: Token): Token[] {
  const { tokens = [], items = [] } = token as { tokens?: Token[]; items?: Token[] };
  return items.length ? items : tokens;
}

/** The place of the last block that is more than white space: whatever stands before it is settled. */
function lastBlock(tokens: Token[]): number {
  let at = tokens.length - 1;
  while (at > 0 && tokens[at]!.type === "space") at--;
  return Math.max(at, 0);
}

function closes(source: string, fence: string): boolean {
  const mark = fence[0] === "`" ? "`" : "~";
  return new RegExp(`\\n {0,3}${mark}{${fence.length},}[ \\t]*(?:\\n|$)`).test(source);
}

/** Code whose closing fence has not come yet. The lexer need not look at it again with each word. */
function openCode(source: string, [opening, , info = ""]: RegExpExecArray): Tokens.Code {
  return {
    type: "code",
    raw: source,
    lang: info.trim(),
    text: source.slice(opening.length),
    isOpen: true,
  } as Tokens.Code;
}

function plain(source: string): Tokens.Text {
  return { type: "text", raw: source, text: source, escaped: false, isPlain: true } as Tokens.Text;
}
