/** What was typed and not sent, for each session, in this browser. */
const place = (session: string | null) => `holdfast.draft.${session ?? "new"}`;

export function readDraft(session: string | null): string {
  return localStorage.getItem(place(session)) ?? "";
}

export function keepDraft(session: string | null, text: string): void {
  if (text) localStorage.setItem(place(session), text);
  else localStorage.removeItem(place(session));
}
