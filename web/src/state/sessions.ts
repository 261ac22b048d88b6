/** The list of sessions: searched, kept fresh while it is looked at, deleted with a way back. */
import { effect, signal } from "@preact/signals";
import { api, isAway, key } from "../api";
import type { ListedSession } from "../types";
import { t } from "../words";
import { notifies } from "./notifies";
import { toast } from "./toasts";

export const sessions = signal<ListedSession[]>([]);
export const query = signal("");
export const hasMore = signal(false);
export const listState = signal<"loading" | "ready" | "failed">("loading");

/** Sessions that are about to be deleted, with what stops that. */
const leaving = new Map<string, ReturnType<typeof setTimeout>>();
const UNDO = 6_000;
/** Between two looks at the list, in milliseconds: while a response runs somewhere, and else. */
const REFRESH = { busy: 2_000, idle: 8_000 };
let next: string | null = null;
let asked = 0;
/** What was noted of sessions while a list was on its way: it is newer than the list. */
let newer = new Map<string, Partial<ListedSession>>();

export async function loadSessions(): Promise<void> {
  const mine = ++asked;
  newer = new Map();
  try {
    const page = await api.sessions(query.value, "", Math.min(200, Math.max(50, sessions.value.length)));
    if (mine !== asked) return;
    const listed = page.sessions.filter(({ id }) => !leaving.has(id));
    sessions.value = listed.map((session) => ({ ...session, ...newer.get(session.id) }));
    next = page.next;
    hasMore.value = next !== null;
    listState.value = "ready";
  } catch {
    if (mine === asked && listState.value === "loading") listState.value = "failed";
  }
}

export async function loadMoreSessions(): Promise<void> {
  if (!next) return;
  const page = await api.sessions(query.value, next);
  const known = new Set(sessions.value.map(({ id }) => id));
  sessions.value = [...sessions.value, ...page.sessions.filter(({ id }) => !known.has(id) && !leaving.has(id))];
  next = page.next;
  hasMore.value = next !== null;
}

/** Take in what is known of a session from elsewhere: its feed, or an answer to a change. */
export function noteSession(changes: Partial<ListedSession> & { id: string }): void {
  newer.set(changes.id, { ...newer.get(changes.id), ...changes });
  const list = sessions.peek();
  const at = list.findIndex(({ id }) => id === changes.id);
  const before = list[at];
  if (before) {
    const isNews = Object.entries(changes).some(([name, value]) => before[name as keyof ListedSession] !== value);
    if (isNews) sessions.value = list.with(at, { ...before, ...changes });
  } else if (changes.created_at && !query.peek() && !leaving.has(changes.id)) {
    sessions.value = [{ active_run: null, needs_approval: false, hit: null, ...changes } as ListedSession, ...list];
  }
}

export async function rename(id: string, title: string): Promise<void> {
  noteSession(await api.changeSession(id, { title }));
}

export async function setPinned(id: string, pinned: boolean): Promise<void> {
  noteSession(await api.changeSession(id, { pinned }));
  await loadSessions();
}

/** Take a session off the list now and delete it in a few seconds, unless someone wants it back. */
export function removeWithUndo(id: string, onUndo: () => void = () => {}): void {
  const title = sessions.value.find((each) => each.id === id)?.title || t().untitled;
  sessions.value = sessions.value.filter((each) => each.id !== id);
  leaving.set(
    id,
    setTimeout(() => finish(id), UNDO),
  );
  toast(t().deleted(title), {
    lasts: UNDO,
    action: {
      label: t().undo,
      run: () => {
        clearTimeout(leaving.get(id));
        leaving.delete(id);
        loadSessions();
        onUndo();
      },
    },
  });
}

async function finish(id: string, keepalive = false): Promise<void> {
  clearTimeout(leaving.get(id));
  try {
    await api.deleteSession(id, keepalive);
  } catch (error) {
    toast(t().deleteFailed((error as Error).message), { kind: "bad" });
  }
  leaving.delete(id);
}

/** Load the list now and then. A tab that is not looked at does so only to notify of approvals. */
function refreshLater(): void {
  const isBusy = sessions.peek().some(({ active_run }) => active_run);
  setTimeout(
    () => {
      const isWanted = document.visibilityState === "visible" || notifies.peek();
      if (isWanted && !isAway.value) loadSessions();
      refreshLater();
    },
    isBusy ? REFRESH.busy : REFRESH.idle,
  );
}

/** Keep the list up to date from now on, and delete what was to be deleted when the page is left. */
export function keepSessions(): void {
  addEventListener("pagehide", () => {
    for (const id of leaving.keys()) finish(id, true);
  });
  refreshLater();
  addEventListener("focus", () => void loadSessions());
  effect(() => {
    key.value;
    query.value;
    if (!isAway.value) queueMicrotask(loadSessions);
  });
}
