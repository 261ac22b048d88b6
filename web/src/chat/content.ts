/** A message's content as text and pictures. */
import type { Content, Part } from "../types";
import { REFERENCE } from "../ui/picture";

export function textOf(content: Content | null): string {
  if (content === null) return "";
  if (typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? (part.text ?? "") : "")).join("");
}

export function picturesOf(content: Content | null): string[] {
  if (content === null || typeof content === "string") return [];
  return content.map(pictureOf).filter((url) => url.startsWith("data:image/") || url.startsWith(REFERENCE));
}

function pictureOf(part: Part): string {
  const url = part.type === "image_url" ? part.image_url?.url : null;
  return typeof url === "string" ? url : "";
}

/** What is sent: plain text where that is all there is. */
export function contentOf(text: string, pictures: string[]): Content {
  if (!pictures.length) return text;
  const shown: Part[] = pictures.map((url) => ({ type: "image_url", image_url: { url } }));
  return text ? [{ type: "text", text }, ...shown] : shown;
}

/** Whether a stored content is what was sent. Pictures are data when they are sent, and references once they are stored. */
export function isSameContent(stored: Content | null, sent: Content): boolean {
  return textOf(stored) === textOf(sent) && picturesOf(stored).length === picturesOf(sent).length;
}
