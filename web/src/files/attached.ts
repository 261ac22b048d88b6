/** What goes with a message beside its text: pictures and files, as parts of its content. */
import type { Content, Part } from "../types";
import { REFERENCE } from "../ui/picture";

/** A file that is a part of a message. */
export interface FileOfMessage {
  name: string;
  /** Its reference, or itself as a data URL. */
  url: string;
}

/** What the server has found in a file. */
export interface FileFacts {
  name: string;
  type: string;
  size: number;
  sha256: string;
  /** About how many tokens a model reads; null if that depends on the model. */
  tokens: number | null;
  pages: number | null;
  /** False for a scan, and for a picture: a model has to see. */
  has_text: boolean;
}

/** Something that goes with a message that is being written. */
export interface Attached {
  part: Part;
  facts: FileFacts | null;
  /** The text that was pasted: it can become text again. */
  pasted: string | null;
}

/** About how many tokens the picture of a page has, and how many pages can be shown so. */
const [PAGE_SEEN, MOST_PAGES_SEEN] = [1_500, 50];

/** Whether a model is to look at the pages of a PDF instead of reading their text. */
export function isSeen({ part }: Attached): boolean {
  return part.file?.read_as === "pictures";
}

/** Whether the pages of a PDF can be shown in place of its text. */
export function canBeSeen({ facts }: Attached): boolean {
  return facts?.type === "application/pdf" && facts.has_text && (facts.pages ?? 0) <= MOST_PAGES_SEEN;
}

/** The same file, read in the other way. */
export function readOtherwise(attached: Attached): Attached {
  const { read_as: _, ...file } = attached.part.file ?? {};
  const changed = isSeen(attached) ? file : { ...file, read_as: "pictures" };
  return { ...attached, part: { ...attached.part, file: changed } };
}

export function tokensOf(attached: Attached): number | null {
  return isSeen(attached) ? PAGE_SEEN * (attached.facts?.pages ?? 0) : (attached.facts?.tokens ?? null);
}

export function picturePart(url: string): Part {
  return { type: "image_url", image_url: { url } };
}

export function filePart(name: string, url: string): Part {
  return { type: "file", file: { filename: name, file_data: url } };
}

export function pictureOf(part: Part): string {
  const url = part.type === "image_url" ? part.image_url?.url : null;
  return typeof url === "string" && (url.startsWith("data:image/") || url.startsWith(REFERENCE)) ? url : "";
}

/** The addresses of the pictures of an answer, also of those that are elsewhere. */
export function picturesOf(content: Content | null): string[] {
  if (content === null || typeof content === "string") return [];
  return content.flatMap((part) => (part.type === "image_url" && part.image_url?.url) || []);
}

export function fileOf(part: Part): FileOfMessage | null {
  const file = part.type === "file" ? part.file : null;
  return file && typeof file.file_data === "string" ? { name: String(file.filename ?? ""), url: file.file_data } : null;
}

/** The parts of a message that are no text. */
export function attachedOf(content: Content | null): Part[] {
  if (content === null || typeof content === "string") return [];
  return content.filter((part) => pictureOf(part) || fileOf(part));
}

/** A message's parts, on their way back to the box in which it was written. */
export function givenBack(parts: Part[]): Attached[] {
  return parts.map((part) => ({ part, facts: null, pasted: null }));
}

/** The names of a message's files, for a line about it. */
export function namesOf(content: Content | null): string {
  const names = attachedOf(content).map((part) => fileOf(part)?.name ?? "");
  return names.filter(Boolean).join(", ");
}
