/**
 * What keeps the time for reading a text in proportion to its length, whatever a model writes.
 *
 * The lexer is quick with what people write. Some texts that nobody reads take it time that grows with the square of
 * their length: very many marks of emphasis in one paragraph, addresses without an end, lists within lists. Those marks
 * are left as they are written.
 */
import type { TokenizerObject } from "marked";

/** Characters that are read at a time. A longer block is cut. */
export const LONGEST_BLOCK = 20_000;
/** Formulas in one text that are drawn; more are shown as they are written. Drawing one is a hundred times its reading. */
export const MOST_FORMULAS = 2_000;
/** Marks of emphasis in one paragraph, heading or cell; more are shown as they are written. */
const MOST_MARKS = 1_000;
/** Characters before an @ that can be the name in an address. */
const LONGEST_NAME = 200;
/** Quotes and lists within one another, on one line. The lexer's time doubles with each level that a later line leaves. */
const TOO_DEEP = /^[ \t]*(?:(?:>[ \t]?|[-+*][ \t]+|\d{1,9}[.)][ \t]+)){10}/m;
const NAME = /[\w.!#$%&'*+/=?^`{|}~-]/;
/** Words so long that the lexer should not look through them, at each of their marks, for an address. */
const ENDLESS_WORD = /^[\w.!#$%&'*+/=?^`{|}~-]{300}/;
const TO_NEXT_MARK = /^[\s\S][^\\<![`*~_\n$]{0,299}/;
const MAY_BE_ADDRESS = /^(?:https?:\/\/|ftp:\/\/|www\.|mailto:|xmpp:|[\w.+-]{1,200}@)/i;

/** Tell whether a text has something in it that the lexer would not get done with. */
export function isBeyondTheLexer(source: string): boolean {
  return TOO_DEEP.test(source) || hasEndlessName(source);
}

function hasEndlessName(source: string): boolean {
  for (let at = source.indexOf("@"); at >= 0; at = source.indexOf("@", at + 1)) {
    let from = at;
    while (from > 0 && at - from <= LONGEST_NAME && NAME.test(source.charAt(from - 1))) from--;
    if (at - from > LONGEST_NAME) return true;
  }
  return false;
}

/** Counts the marks of each text once. The lexer asks at every mark, with the same text. */
class Marks {
  #text = "";
  #count = 0;

  areTooMany(text: string): boolean {
    if (text !== this.#text) {
      this.#text = text;
      this.#count = text.match(/[*_~]/g)?.length ?? 0;
    }
    return this.#count > MOST_MARKS;
  }
}

const marks = new Marks();

/** In the place of the lexer's own: `false` lets it do its work, nothing leaves the mark as it is written. */
export const boundedTokenizer: TokenizerObject = {
  emStrong: (_source, masked) => (marks.areTooMany(masked) ? undefined : false),
  del: (_source, masked) => (marks.areTooMany(masked) ? undefined : false),
  url: (source) => (MAY_BE_ADDRESS.test(source) ? false : undefined),
  inlineText: (source) => {
    const [raw] = (ENDLESS_WORD.test(source) && TO_NEXT_MARK.exec(source)) || [];
    return raw ? { type: "text", raw, text: raw, escaped: false } : false;
  },
};
