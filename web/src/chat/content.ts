/** A message's content as text, and what goes with it. */
import { attachedOf } from "../files/attached";
import type { Content, Part } from "../types";

export function textOf(content: Content | null): string {
  if (content === null) return "";
  if (typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? (part.text ?? "") : "")).join("");
}

/** What is sent: plain text where that is all there is. A model reads files before the question. */
export function contentOf(text: string, attached: Part[]): Content {
  if (!attached.length) return text;
  const files = attached.filter(({ type }) => type === "file");
  const pictures = attached.filter(({ type }) => type !== "file");
  return [...files, ...(text ? [{ type: "text", text }] : []), ...pictures];
}

/** Whether a stored content is what was sent. Files are data when they are sent, and references once they are stored. */
export function isSameContent(stored: Content | null, sent: Content): boolean {
  return textOf(stored) === textOf(sent) && attachedOf(stored).length === attachedOf(sent).length;
}
