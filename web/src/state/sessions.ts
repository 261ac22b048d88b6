/** The list of sessions: searched, kept up to date by its feed, deleted with a way back. */
import { effect, signal } from "@preact/signals";
import { api, isAway, key, type ListFilter } from "../api";
import { losses, watch } from "../connection";
import { LIST } from "../connection/messages";
import type { FeedFrame, ListedSession } from "../types";
import { t } from "../words";
import { toast } from "./toasts";

export const sessions = signal<ListedSession[]>([]);
export const query = signal("");
export const hasMore = signal(false);
/** Which chats are listed if none are searched for: those under a tag, or the archived ones. Empty for all but these. */
export const filter = signal<ListFilter>({});
/** How often the list was loaded from its beginning. */
export const loads = signal(0);
/** The titles that sessions have been given meanwhile, whatever part of the list is shown. */
export const titles = signal<ReadonlyMap<string, string>>(new Map());
export const listState = signal<"loading" | "ready" | "failed">("loading");

/** Sessions that are about to be deleted, with what stops that. */
const leaving = new Map<string, ReturnType<typeof setTimeout>>();
const UNDO = 6_000;
/** How many sessions one call deletes. */
const MOST = 200;
let next: string | null = null;
let asked = 0;
let unwatch: (() => void) | null = null;
/** What was noted of sessions while a list was on its way: it is newer than the list. */
let newer = new Map<string, Partial<ListedSession>>();

export async function loadSessions(): Promise<void> {
  const mine = ++asked;
  newer = new Map();
  try {
    const page = await api.sessions(query.value, "", Math.min(200, Math.max(50, sessions.value.length)), shownOnly());
    if (mine !== asked) return;
    const listed = page.sessions.filter(({ id }) => !leaving.has(id));
    sessions.value = listed.map((session) => ({ ...session, ...newer.get(session.id) }));
    next = page.next;
    hasMore.value = next !== null;
    listState.value = "ready";
    loads.value++;
    unwatch ??= watch(LIST, page.feed, take);
  } catch {
    if (mine === asked && listState.value === "loading") listState.value = "failed";
  }
}

export async function loadMoreSessions(): Promise<void> {
  if (!next) return;
  const [sought, only] = [query.value, filter.value];
  const page = await api.sessions(sought, next, 50, shownOnly());
  if (sought !== query.value || only !== filter.value) return; // another list is shown by now
  add(page.sessions);
  next = page.next;
  hasMore.value = next !== null;
}

/** Load more chats into the list: those of a folder. Returns after which one there are more. */
export async function loadFiltered(only: ListFilter, before = ""): Promise<string | null> {
  const page = await api.sessions("", before, 50, only);
  if (!query.peek() && !isFiltered()) {
    add(page.sessions);
    sessions.value = [...sessions.value].sort(byPlace);
  }
  return page.next;
}

function add(found: ListedSession[]): void {
  const known = new Set(sessions.value.map(({ id }) => id));
  sessions.value = [...sessions.value, ...found.filter(({ id }) => !known.has(id) && !leaving.has(id))];
}

const shownOnly = (): ListFilter => (query.value ? {} : filter.value);

export function isFiltered(): boolean {
  return Object.keys(filter.value).length > 0;
}

/** Whether a chat is one of those that are listed now. */
function belongs({ tags, archived }: ListedSession): boolean {
  const { tag, archived: isArchive = false } = filter.peek();
  return archived === isArchive && (tag === undefined || tags.includes(tag));
}

/** Take what the feed of the list says. */
function take(frames: FeedFrame[]): void {
  for (const frame of frames) {
    if (frame.type === "sessions.changed") loadSessions();
    else if (frame.type === "session.deleted") drop(frame.session_id);
    else if (frame.type === "session.listed") {
      const { hit: _, ...session } = frame.session; // only a search has hits
      noteSession(session);
    }
  }
}

/** Take in what is known of a session from elsewhere: a feed, or an answer to a change. */
export function noteSession(changes: Partial<ListedSession> & { id: string }): void {
  if (changes.title) titles.value = new Map(titles.peek()).set(changes.id, changes.title);
  const list = sessions.peek();
  const before = list.find(({ id }) => id === changes.id);
  if (before && changes.updated_at && changes.updated_at < before.updated_at) return; // it was overtaken on its way
  newer.set(changes.id, { ...newer.get(changes.id), ...changes });
  const isKnown =
    before && Object.entries(changes).every(([name, value]) => before[name as keyof ListedSession] === value);
  const isNew = !before && changes.created_at && !query.peek() && !leaving.has(changes.id);
  if (isKnown || !(before || isNew)) return;
  const none = { active_run: null, needs_approval: false, unread: null, hit: null };
  const session = { ...none, ...before, ...changes } as ListedSession;
  if (!query.peek() && !belongs(session)) return drop(session.id);
  sessions.value = query.peek()
    ? list.map((each) => (each === before ? session : each))
    : [session, ...list.filter((each) => each !== before)].sort(byPlace);
}

/** The server's order: pinned ones first, then those that changed last. */
function byPlace(one: ListedSession, other: ListedSession): number {
  return Number(other.pinned) - Number(one.pinned) || (one.updated_at < other.updated_at ? 1 : -1);
}

function drop(id: string): void {
  sessions.value = sessions.value.filter((each) => each.id !== id);
}

export async function rename(id: string, title: string): Promise<void> {
  noteSession(await api.changeSession(id, { title }));
}

export async function setPinned(id: string, pinned: boolean): Promise<void> {
  noteSession(await api.changeSession(id, { pinned }));
}

/** Take sessions off the list now and delete them in a few seconds, unless someone wants them back. */
export function removeWithUndo(given: string | string[], told = "", onUndo: () => void = () => {}): void {
  const ids = [given].flat();
  const title = sessions.value.find((each) => each.id === given)?.title || t().untitled;
  const timer = setTimeout(() => finish(ids), UNDO);
  for (const id of ids) leaving.set(id, timer);
  sessions.value = sessions.value.filter(({ id }) => !leaving.has(id));
  toast(told || t().deleted(title), {
    lasts: UNDO,
    action: {
      label: t().undo,
      run: () => {
        clearTimeout(timer);
        for (const id of ids) leaving.delete(id);
        loadSessions();
        onUndo();
      },
    },
  });
}

async function finish(ids: string[], keepalive = false): Promise<void> {
  for (const id of ids) clearTimeout(leaving.get(id));
  try {
    const [first = ""] = ids;
    if (ids.length === 1) await api.deleteSession(first, keepalive);
    else for (let at = 0; at < ids.length; at += MOST) await deleteSome(ids.slice(at, at + MOST), keepalive);
  } catch (error) {
    toast(t().deleteFailed((error as Error).message), { kind: "bad" });
  }
  for (const id of ids) leaving.delete(id);
}

async function deleteSome(ids: string[], keepalive: boolean): Promise<void> {
  const { failed } = await api.deleteSessions(ids, keepalive);
  if (failed[0]) toast(t().deleteFailed(failed[0].message), { kind: "bad" });
}

/** Keep the list up to date from now on, and delete what was to be deleted when the page is left. */
export function keepSessions(): void {
  addEventListener("pagehide", () => {
    if (leaving.size) finish([...leaving.keys()], true);
  });
  effect(() => {
    losses.value;
    unwatch?.();
    unwatch = null; // whatever this tab missed, the list that is loaded now has it
  });
  effect(() => {
    key.value;
    query.value;
    filter.value;
    losses.value;
    if (!isAway.value) queueMicrotask(loadSessions);
  });
}
