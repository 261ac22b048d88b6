/**
 * Markdown that is still being written, cut into blocks.
 *
 * A block that another one follows never changes again. So only the last one is read anew when text arrives, and what
 * an answer costs to draw does not grow with its length. The lexer is given a piece of limited length at a time, so that
 * the time for a text grows with its length and no faster.
 */
import { Lexer, Marked, type Token, type Tokens } from "marked";
import { footnoteExtensions } from "./footnote-syntax";
import { boundedTokenizer, isBeyondTheLexer, LONGEST_BLOCK, MOST_FORMULAS } from "./limits";
import { mathExtensions } from "./math-syntax";

const marked = new Marked({
  gfm: true,
  extensions: [...mathExtensions, ...footnoteExtensions],
  tokenizer: boundedTokenizer,
});

const OPEN_FENCE = /^ {0,3}(`{3,}(?=[^`\n]*(?:\n|$))|~{3,})([^\n]*)(?:\n|$)/;

type Links = Lexer["tokens"]["links"];

export class Blocks {
  /** What has been read so far, with line breaks as Markdown counts them. */
  #source = "";
  /** Where the last block begins. */
  #settledTo = 0;
  #settled: Token[] = [];
  /** Links that the settled blocks define. One in the last block may be half written. */
  #links: Links = Object.create(null);
  /** Formulas in the settled blocks. */
  #formulas = 0;
  #all: Token[] = [];

  /** Return the blocks of a text. Blocks that have not changed are the same objects as before. */
  read(text: string): Token[] {
    return this.#read(text).filter(({ type }) => type !== "space" && type !== "def");
  }

  /** Read a text that is whole. Links that are defined at its end are links from its beginning. */
  finish(text: string): Token[] {
    const last = this.#read(text).slice(this.#settled.length);
    const whole = new Blocks();
    whole.#links = Object.create(this.#links);
    define(whole.#links, last);
    if (!isAnyDefined(whole.#links)) return this.read(text);
    const blocks = whole.read(text);
    this.#all = whole.#all;
    return blocks;
  }

  /** The blocks of the text that was read last that some places lie in. */
  at(places: readonly number[]): ReadonlySet<Token> {
    const found = new Set<Token>();
    let end = 0;
    for (const token of places.length ? this.#all : []) {
      const begin = end;
      end += token.raw.length;
      if (places.some((place) => begin <= place && place < end)) found.add(token);
    }
    return found;
  }

  #read(text: string): Token[] {
    const source = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    if (!source.startsWith(this.#source.slice(0, this.#settledTo))) this.#restart();
    this.#source = source;
    const last = this.#last();
    this.#all = [...this.#settled, ...last];
    return this.#all;
  }

  #restart(): void {
    this.#settledTo = 0;
    this.#settled = [];
    this.#links = Object.create(null);
    this.#formulas = 0;
  }

  /** Settle what is followed by another block, and return the last one. */
  #last(): Token[] {
    for (;;) {
      const rest = this.#source.slice(this.#settledTo);
      const code = longCode(rest);
      const isCut = !code && rest.length > LONGEST_BLOCK;
      const tokens = code ? [code] : this.#lex(isCut ? rest.slice(0, cutAt(rest)) : rest);
      const isLast = !isCut && (code?.raw.length ?? rest.length) === rest.length;
      const keep = isLast ? lastBlock(tokens) : lastBlock(tokens) || tokens.length;
      this.#settle(tokens.slice(0, keep));
      if (isLast) return tokens.slice(keep);
    }
  }

  #settle(tokens: Token[]): void {
    for (const token of tokens) {
      this.#settledTo += token.raw.length;
      this.#formulas += formulasOf([token]).length;
      this.#settled.push(token);
    }
    define(this.#links, tokens);
  }

  #lex(source: string): Token[] {
    if (isBeyondTheLexer(source)) return [plain(source)];
    try {
      const lexer = new Lexer(marked.defaults);
      lexer.tokens.links = Object.create(this.#links); // what it finds is kept when its block is settled
      const tokens = lexer.lex(source).map((token) => (isTooDeep(token) ? plain(token.raw) : token));
      for (const formula of formulasOf(tokens).slice(Math.max(0, MOST_FORMULAS - this.#formulas)))
        Object.assign(formula, formula.type === "math" ? { type: "text", text: formula.raw } : plain(formula.raw));
      return tokens;
    } catch {
      return [plain(source)]; // a text that the lexer gives up on is still a text
    }
  }
}

/** Where a text is cut that is too long to be read at once: after a paragraph if there is one, else after a line. */
function cutAt(rest: string): number {
  const piece = rest.slice(0, LONGEST_BLOCK);
  for (const end of ["\n\n", "\n", " "]) {
    const at = piece.lastIndexOf(end);
    if (at > LONGEST_BLOCK / 2) return at + end.length;
  }
  return LONGEST_BLOCK;
}

/** Take up the links that some blocks define. The first definition counts. */
function define(links: Links, tokens: Token[]): void {
  marked.walkTokens(tokens, (token) => {
    if (token.type !== "def") return;
    const { tag, href, title } = token as Tokens.Def;
    if (!(tag in links)) links[tag] = { href, title };
  });
}

function isAnyDefined(links: Links): boolean {
  for (const _ in links) return true; // inherited ones too
  return false;
}

/** The formulas of some blocks, in the order of the text. */
function formulasOf(tokens: Token[]): Token[] {
  const found: Token[] = [];
  marked.walkTokens(tokens, (token) => {
    if (token.type === "math" || token.type === "mathBlock") found.push(token);
  });
  return found;
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
  while (at > 0 && tokens[at]?.type === "space") at--;
  return Math.max(at, 0);
}

/** Code at the beginning of a text that the lexer need not look at: it is not closed yet, or it is long. */
function longCode(rest: string): Tokens.Code | null {
  const fence = OPEN_FENCE.exec(rest);
  if (!fence) return null;
  const [opening, marks, info] = fence as unknown as [string, string, string];
  const closing = new RegExp(`\\n {0,3}${marks[0]}{${marks.length},}[ \\t]*(?:\\n|$)`, "g");
  closing.lastIndex = opening.length - 1;
  const closed = closing.exec(rest);
  const end = closed ? closed.index + closed[0].length : rest.length;
  if (closed && end <= LONGEST_BLOCK) return null;
  const text = rest.slice(opening.length, closed ? Math.max(closed.index, opening.length) : rest.length);
  return { type: "code", raw: rest.slice(0, end), lang: info.trim(), text, isOpen: !closed } as Tokens.Code;
}

function plain(source: string): Tokens.Text {
  return { type: "text", raw: source, text: source, escaped: false, isPlain: true } as Tokens.Text;
}
