/**
 * Which chats have had a response since their reader saw them last, on any device, and how it ended.
 *
 * The server keeps what each person has seen; the list of chats says what is unread. This tab only tells what is seen
 * in it: the end of a chat that is in view while the tab is looked at.
 */
import { computed, effect, signal } from "@preact/signals";
import { api } from "../api";
import { place } from "../router";
import { current } from "../state/current";
import { sessions } from "../state/sessions";
import type { Outcome } from "../types";

const EVERYTHING = Number.MAX_SAFE_INTEGER;

export const isLookedAt = signal(!document.hidden);
/** Whether the end of the chat that is shown is in view. */
export const isEndInView = signal(true);

/** The chats that are marked, and with what. */
export const unread = computed<ReadonlyMap<string, Outcome>>(() => {
  const shown = isLookedAt.value ? place.value.id : null;
  const marked = sessions.value.filter(({ id, active_run }) => !active_run && id !== shown);
  return new Map(marked.flatMap(({ id, unread }) => (unread ? [[id, unread]] : [])));
});

/** How many chats have something new, as the title of a tab counts them that nobody looks at. */
export const unreadCount = computed(() => (isLookedAt.value ? 0 : unread.value.size));

/** How far each chat was told to be seen by this tab. */
const sent = new Map<string, number>();

/** Tell the server from now on what is seen here. */
export function watchUnread(): void {
  document.addEventListener("visibilitychange", () => {
    isLookedAt.value = !document.hidden;
  });
  effect(() => {
    const chat = current.value;
    if (!chat || chat.isTemporary || chat.loading.value !== "ready") return;
    if (isLookedAt.value && isEndInView.value && !chat.isRunning.value) noteSeen(chat.id, chat.read.value);
  });
  let before = new Set<string>();
  effect(() => {
    const now = new Set([...unread.value.keys(), ...sessions.value.filter(waits).map(({ id }) => id)]);
    if (isLookedAt.peek()) for (const id of now) if (!before.has(id) && before.size + sent.size) noteTold(id);
    before = now;
  });
}

const waits = ({ needs_approval }: { needs_approval: boolean }) => needs_approval;

async function noteSeen(id: string, seen: number): Promise<void> {
  if (seen <= (sent.get(id) ?? 0)) return;
  sent.set(id, seen);
  await api.noteSeen(id, { seen }).catch(() => sent.delete(id)); // it is told again when something changes
}

/** Who looks at the list here needs no notification elsewhere. */
async function noteTold(id: string): Promise<void> {
  await api.noteSeen(id, { told: EVERYTHING }).catch(() => {});
}
