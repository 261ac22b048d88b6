/** Chats that wait for their user, for the tab's title; and what notifies of them, if the user wants that. */
import { computed } from "@preact/signals";
import { notifies } from "./notifies";
import { sessions } from "./sessions";

const waiting = computed(() => sessions.value.filter(({ needs_approval }) => needs_approval));
/** How many chats wait for their user. */
export const waitingCount = computed(() => waiting.value.length);

/** Notify from now on of each chat that begins to wait, or has an answer, while the page is not looked at. */
export function watchAttention(): void {
  if (notifies.peek()) import("../notifications/browser").then(({ renew }) => renew());
}
