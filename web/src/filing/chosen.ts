/** Which chats of the list are chosen to be filed, deleted or exported together, and which are being filed. */
import { signal } from "@preact/signals";

/** The ids of the chosen chats; null while none can be chosen. */
export const chosen = signal<ReadonlySet<string> | null>(null);
/** The chats for which the dialog is open. */
export const organized = signal<readonly string[] | null>(null);

let last = "";

/** Choose a chat, or no longer; with `isRange` all from the last one on. */
export function choose(id: string, isRange = false): void {
  const before = chosen.peek() ?? new Set();
  const shown = shownIds();
  const [from, to] = [shown.indexOf(last), shown.indexOf(id)].sort((one, other) => one - other);
  const ids = isRange && from !== undefined && from >= 0 ? shown.slice(from, (to ?? from) + 1) : [id];
  const isOn = isRange || !before.has(id);
  const after = new Set(before);
  for (const each of ids) isOn ? after.add(each) : after.delete(each);
  last = id;
  chosen.value = after;
}

export function chooseAll(): void {
  chosen.value = new Set(shownIds());
}

export function chooseNone(): void {
  chosen.value = null;
  last = "";
}

function shownIds(): string[] {
  return [...document.querySelectorAll<HTMLElement>(".sessions .session[data-id]")].map(
    ({ dataset }) => dataset.id ?? "",
  );
}
