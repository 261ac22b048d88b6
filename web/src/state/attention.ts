/** Chats that wait for their user: in the tab's title, and as notifications if no push service brings them. */
import { computed, effect } from "@preact/signals";
import { unread } from "../notifications/unread";
import { t } from "../words";
import { notifies } from "./notifies";
import { sessions } from "./sessions";

const waiting = computed(() => sessions.value.filter(({ needs_approval }) => needs_approval));
/** How many chats wait for their user. */
export const waitingCount = computed(() => waiting.value.length);

/** What a notification is about: a chat that waits, or one whose answer has ended. */
const news = computed(() => {
  const marked = sessions.value.filter(({ id, needs_approval }) => needs_approval || unread.value.has(id));
  return new Map(marked.map(({ id, needs_approval }) => [id, needs_approval]));
});

/** Notify from now on of each chat that begins to wait, or has an answer, while the page is not looked at. */
export function watchAttention(): void {
  let known: ReadonlyMap<string, boolean> | null = null;
  effect(() => {
    const now = news.value;
    const isWanted = document.hidden && notifies.value === "page";
    for (const [id, waits] of now) if (known && known.get(id) !== waits && isWanted) notify(id, waits);
    if (sessions.value.length || known) known = now; // what was unread before is no news
  });
  if (notifies.peek() === "push") import("../notifications/browser").then(({ renew }) => renew());
}

function notify(id: string, waits: boolean): void {
  const { title } = sessions.peek().find((each) => each.id === id) ?? {};
  const shown = new Notification(waits ? t().needsApproval : t().answerReady, { body: title || t().untitled, tag: id });
  shown.onclick = () => {
    focus();
    location.assign(`/s/${id}`);
  };
}
