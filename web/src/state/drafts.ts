/** What was typed and not sent, for each session, in this browser; for a temporary chat only in this tab's memory. */
import { signal } from "@preact/signals";
import type { Attached } from "../files/attached";
import { TEMPORARY } from "../router";

/** A message that was not taken, on its way back to the box of the session that it was for. */
export const returned = signal<Returned | null>(null);

interface Returned {
  session: string | null;
  text: string;
  attached: Attached[];
  /** What there is to say of it, where one types. */
  why: string;
}

const PREFIX = "holdfast.draft.";
const place = (session: string | null) => `${PREFIX}${session ?? "new"}`;

let temporary = "";

export function readDraft(session: string | null): string {
  if (session === TEMPORARY) return temporary;
  return localStorage.getItem(place(session)) ?? "";
}

export function keepDraft(session: string | null, text: string): void {
  if (session === TEMPORARY) temporary = text;
  else if (text) localStorage.setItem(place(session), text);
  else localStorage.removeItem(place(session));
}

/** Forget all drafts: the next person at this browser must not read them. */
export function forgetDrafts(): void {
  const names = Array.from({ length: localStorage.length }, (_, at) => localStorage.key(at) ?? "");
  for (const name of names) if (name.startsWith(PREFIX)) localStorage.removeItem(name);
}

export function giveBack(session: string | null, text: string, attached: Attached[], why = ""): void {
  keepDraft(session, text);
  returned.value = { session, text, attached, why };
}
