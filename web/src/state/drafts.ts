/** What was typed and not sent, for each session, in this browser. */
import { signal } from "@preact/signals";

/** A message that was not taken, on its way back to the box of the session that it was for. */
export const returned = signal<{ session: string | null; text: string; pictures: string[] } | null>(null);

const place = (session: string | null) => `holdfast.draft.${session ?? "new"}`;

export function readDraft(session: string | null): string {
  return localStorage.getItem(place(session)) ?? "";
}

export function keepDraft(session: string | null, text: string): void {
  if (text) localStorage.setItem(place(session), text);
  else localStorage.removeItem(place(session));
}

export function giveBack(session: string | null, text: string, pictures: string[]): void {
  keepDraft(session, text);
  returned.value = { session, text, pictures };
}
