/**
 * What was typed and is not on the server yet, in this browser; for a temporary chat only in this tab's memory. Its place
 * is a session, for its next message, or `placeOfEdit`.
 */
import { signal } from "@preact/signals";
import type { Attached } from "../files/attached";
import { TEMPORARY } from "../router";

/** Something on its way back to the box of the session that it was for. Its text is in the draft already. */
export const returned = signal<Returned | null>(null);

interface Returned {
  session: string | null;
  attached: Attached[];
  /** What there is to say of it, where one types. */
  why: string;
}

const PREFIX = "holdfast.draft.";
const place = (session: string | null) => `${PREFIX}${session ?? "new"}`;

const inMemory = new Map<string, string>();
/** The place of a message that is being changed. */
export const placeOfEdit = (session: string, id: string) => `${session}#${id}`;
const isTemporary = (session: string | null) => session?.startsWith(TEMPORARY);

export function readDraft(session: string | null): string {
  return (isTemporary(session) ? inMemory.get(place(session)) : localStorage.getItem(place(session))) ?? "";
}

export function keepDraft(session: string | null, text: string): void {
  if (isTemporary(session)) inMemory.set(place(session), text);
  else if (text) localStorage.setItem(place(session), text);
  else localStorage.removeItem(place(session));
}

export function forgetTemporary(): void {
  inMemory.clear();
}

/** Forget all drafts: the next person at this browser must not read them. */
export function forgetDrafts(): void {
  const names = Array.from({ length: localStorage.length }, (_, at) => localStorage.key(at) ?? "");
  for (const name of names) if (name.startsWith(PREFIX)) localStorage.removeItem(name);
}

/** Put something back into the box of a session, above what was typed there since. */
export function giveBack(session: string | null, text: string, attached: Attached[], why = ""): void {
  const since = readDraft(session);
  keepDraft(session, since && since !== text ? `${text}\n${since}` : text);
  returned.value = { session, attached, why };
}

/** Put what was typed for one session into the box of another. */
export function moveDraft(from: string | null, to: string | null): void {
  const text = readDraft(from);
  keepDraft(from, "");
  if (text) giveBack(to, text, []);
}

/** Forget the draft of what the server has taken, unless something else was typed since. */
export function noteTaken(session: string | null, text: string): void {
  if (readDraft(session) !== text) return;
  keepDraft(session, "");
  returned.value ??= { session, attached: [], why: "" }; // its box may have been left, and drawn again with it
}
