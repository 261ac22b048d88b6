/** A line of Markdown as a reader would say it: without its marks. What may be something else, as `a * b`, stays. */
const MARKS: [RegExp, string][] = [
  [/!?\[([^\]]*)\]\([^)]*\)/g, "$1"],
  [/\|?(?:\s*:?-{3,}:?\s*\|)+/g, " "],
  [/^\s*\||\|\s*$/g, ""],
  [/\s\|\s/g, " "],
  [/\*\*|~~|`+/g, ""],
  [/(^|[\s(])[*_](?=$|[^\s*_])/g, "$1"],
  [/([^\s*_])[*_](?=$|[\s).,;:!?])/g, "$1"],
];

const AT_START = /^(?:\s*(?:>|#{1,6}|[-*+])\s+)+/;

export function withoutMarks(text: string, isStart: boolean): string {
  return MARKS.reduce((found, [mark, by]) => found.replace(mark, by), isStart ? text.replace(AT_START, "") : text);
}
