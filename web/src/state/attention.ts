/** Chats that wait for approval: in the tab's title, and as notifications if the user allowed them. */
import { computed, effect, signal } from "@preact/signals";
import { t } from "../words";
import { isPermitted, keepNotifies, notifies } from "./notifies";
import { sessions } from "./sessions";

export { notifies } from "./notifies";

/** The browser refused when it was asked. */
export const isBlocked = signal(false);

const waiting = computed(() => sessions.value.filter(({ needs_approval }) => needs_approval));
/** How many chats wait for their user. */
export const waitingCount = computed(() => waiting.value.length);

export async function setNotifies(value: boolean): Promise<void> {
  isBlocked.value = false;
  if (value && !isPermitted()) await globalThis.Notification?.requestPermission();
  isBlocked.value = value && !isPermitted();
  keepNotifies(value && isPermitted());
}

/** Notify from now on of each chat that begins to wait while the page is not looked at. */
export function watchAttention(): void {
  let known = new Set<string>();
  effect(() => {
    const now = waiting.value;
    for (const { id, title } of now) if (!known.has(id) && document.hidden && notifies.value) notify(id, title);
    known = new Set(now.map(({ id }) => id));
  });
}

function notify(id: string, title: string): void {
  const shown = new Notification(t().needsApproval, { body: title || t().untitled, tag: id });
  shown.onclick = () => {
    focus();
    location.assign(`/s/${id}`);
  };
}
