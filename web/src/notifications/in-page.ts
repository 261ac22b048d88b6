/** Notifications by the page itself, while it is open and no push service brings them. */
import { computed, effect } from "@preact/signals";
import { listState, sessions } from "../state/sessions";
import { t } from "../words";
import { n } from "../words/notifications";
import { notifies } from "./notifies";
import { unread } from "./unread";

/** What a notification is about: a chat that waits, or one whose answer has ended. */
const news = computed(() => {
  const marked = sessions.value.filter(({ id, needs_approval }) => needs_approval || unread.value.has(id));
  return new Map(marked.map(({ id, needs_approval }) => [id, needs_approval]));
});
let isWatching = false;

/** Notify of what begins from now on, while the page is not looked at. Repeating it changes nothing. */
export function watchInPage(): void {
  if (isWatching) return;
  isWatching = true;
  let known: ReadonlyMap<string, boolean> | null = null;
  effect(() => {
    const now = news.value;
    const isWanted = document.hidden && notifies.value === "page";
    for (const [id, waits] of now) if (known && known.get(id) !== waits && isWanted) notify(id, waits);
    if (listState.value === "ready") known = now; // what was unread before is no news
  });
}

function notify(id: string, waits: boolean): void {
  const { title } = sessions.peek().find((each) => each.id === id) ?? {};
  const shown = new Notification(waits ? t().needsApproval : n().answerReady, { body: title || t().untitled, tag: id });
  shown.onclick = () => {
    focus();
    location.assign(`/s/${id}`);
  };
}
