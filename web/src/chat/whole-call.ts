/** A call as a person has to see it before it can be allowed: all of it, exactly, with nothing invisible. */

/** Everything that shows nothing, or shows a text in another order: controls, formats, unknown characters, odd blanks. */
const INVISIBLE =
  /[^\P{C}\n]|\p{Zl}|\p{Zp}|(?! )\p{Zs}|[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]|\p{Variation_Selector}/gu;

export function visible(text: string): string {
  return text.replace(INVISIBLE, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}

/** The arguments of a call, indented if that loses nothing. A line end in a string stays visible, and ends the line. */
export function wholeCall(text: string): string {
  return visible(indentedExactly(text).replace(/((?<!\\)(?:\\\\)*\\n)(?!")/g, "$1\n"));
}

/** JSON as it is, but for blanks between its parts. What JavaScript would write differently is left alone. */
function indentedExactly(text: string): string {
  try {
    const parsed = JSON.parse(text);
    const isSame = JSON.stringify(parsed).replace(/\s/g, "") === text.replace(/\s/g, "");
    return isSame ? JSON.stringify(parsed, null, 2) : text;
  } catch {
    return text;
  }
}

/** One argument of a call: a script and the like as code, with its own lines. */
export interface Argument {
  name: string;
  text: string;
  isCode: boolean;
}

/** The arguments of a call one by one; null if they are no object, or if a part would be lost that way. */
export function argumentsOf(text: string): Argument[] | null {
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return null;
    if (JSON.stringify(parsed).replace(/\s/g, "") !== text.replace(/\s/g, "")) return null;
    return Object.entries(parsed).map(([name, value]) => argument(name, value));
  } catch {
    return null;
  }
}

const CODE = new Set(["command", "code", "script", "content", "patch", "query", "sql"]);

function argument(name: string, value: unknown): Argument {
  if (typeof value !== "string") return { name, text: JSON.stringify(value, null, 2), isCode: false };
  return { name, text: value, isCode: CODE.has(name) || value.includes("\n") };
}

/** What a call is about, on one line: its first text. */
export function gist(text: string): string {
  const first = argumentsOf(text)?.find(({ text: value }) => value.trim());
  return first ? visible(first.text.trim().split("\n", 1)[0] ?? "").slice(0, 200) : "";
}

export interface DiffLine {
  kind: "added" | "removed" | "same";
  text: string;
}

/** The lines of a unified diff of whole files, without its heads. */
export function diffLines(preview: string): DiffLine[] {
  const lines = preview.split("\n");
  const from = lines.findIndex((line) => line.startsWith("@@"));
  if (lines.at(-1) === "") lines.pop(); // what follows the last line end is no line
  const last = lines.at(-1);
  if ((last === "+" || last === "-") && lines.at(-2)?.startsWith(last)) lines.pop(); // nor is it in the file
  return lines.slice(from + 1).map((line) => {
    const kind = line[0] === "+" ? "added" : line[0] === "-" ? "removed" : "same";
    return { kind, text: visible(line.slice(1)) };
  });
}
