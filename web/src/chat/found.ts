/** The words that a search has found in a message: their place, and marks on them that change nothing that is drawn. */
import { signal } from "@preact/signals";
import type { SearchHit } from "../types";

/** What the search has found that its reader has chosen last. */
export const found = signal<SearchHit | null>(null);

const MARK = "found";

/**
 * Mark the words in a line that is drawn, and return how far below its top the first word of the sentence is.
 *
 * `text` is the message as it was written. What is drawn has less (marks of Markdown) or more, so the word is found by
 * how often it comes before.
 */
export function markFound(line: HTMLElement, text: string, hit: SearchHit): number | null {
  const words = hit.excerpt.filter(({ match }) => match).map((each) => each.text);
  const [first] = words;
  const drawn = drawnText(line);
  if (!first) return null;
  CSS.highlights?.set(MARK, new Highlight(...rangesOf(drawn, words)));
  const before = [...text.slice(0, utf16(text, hit.offset)).matchAll(anyOf([first]))].length;
  const places = rangesOf(drawn, [first]);
  const place = places[before] ?? places.at(-1);
  return place ? place.getBoundingClientRect().top - line.getBoundingClientRect().top : null;
}

export function unmarkFound(): void {
  CSS.highlights?.delete(MARK);
}

interface Drawn {
  text: string;
  nodes: { node: Text; from: number }[];
}

function drawnText(line: HTMLElement): Drawn {
  const drawn: Drawn = { text: "", nodes: [] };
  for (const said of line.querySelectorAll(".markdown, .said")) {
    const walk = document.createTreeWalker(said, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const node = walk.currentNode as Text;
      drawn.nodes.push({ node, from: drawn.text.length });
      drawn.text += node.data;
    }
  }
  return drawn;
}

function rangesOf({ text, nodes }: Drawn, words: string[]): Range[] {
  return [...text.matchAll(anyOf(words))].flatMap(({ index, 0: word }) => {
    const start = nodes.findLast(({ from }) => from <= index);
    const end = nodes.findLast(({ from }) => from < index + word.length);
    if (!start || !end) return [];
    const range = new Range();
    range.setStart(start.node, index - start.from);
    range.setEnd(end.node, index + word.length - end.from);
    return [range];
  });
}

function anyOf(words: string[]): RegExp {
  return new RegExp(words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|"), "giu");
}

/** The server counts characters, a string its halves of those beyond the basic plane. */
function utf16(text: string, characters: number): number {
  let at = 0;
  for (let count = 0; count < characters && at < text.length; count++)
    at += (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
  return at;
}
