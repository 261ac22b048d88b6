/**
 * Which chats have changed since their user looked at them last, in this browser, and how their last response ended.
 *
 * The browser keeps when each was looked at, and nothing else of it. A chat that it does not know is as old as the first
 * visit.
 */
import { effect, signal } from "@preact/signals";
import { api } from "../api";
import { place } from "../router";
import type { ListedSession } from "../types";
import { sessions } from "./sessions";

const SEEN = "holdfast.seen";

/** When a chat was last changed that its user has looked at, and when the first visit was. */
interface Seen {
  first: string;
  of: Record<string, string>;
}

export type Standing = "ready" | "failed" | "interrupted" | "budget";

/** The chats that are marked, and with what. */
export const unread = signal<ReadonlyMap<string, Standing>>(new Map());

const asked = new Map<string, string>();
let seen: Seen = { first: "", of: {} };

/** Mark chats from now on. */
export function watchUnread(): void {
  seen = kept();
  addEventListener("storage", ({ key }) => {
    if (key === SEEN) seen = kept();
    look();
  });
  document.addEventListener("visibilitychange", look);
  effect(() => {
    sessions.value;
    place.value;
    queueMicrotask(look);
  });
}

export function forgetSeen(): void {
  localStorage.removeItem(SEEN);
}

function look(): void {
  const open = document.hidden ? null : place.peek().id;
  const shown = sessions.peek().find(({ id }) => id === open);
  if (shown && isNewer(shown)) note(shown);
  const marked = sessions.peek().filter((session) => !session.active_run && session.id !== open && isNewer(session));
  unread.value = new Map(marked.map(({ id }) => [id, unread.peek().get(id) ?? "ready"]));
  for (const session of marked) learn(session);
}

/** How the last response of a chat ended. */
async function learn({ id, updated_at }: ListedSession): Promise<void> {
  if (asked.get(id) === updated_at) return;
  asked.set(id, updated_at);
  const { runs } = await api.runs({ session_id: id, limit: "1" }).catch(() => ({ runs: [] }));
  const settlement = runs[0]?.settlement;
  if (!settlement) asked.delete(id); // it has not ended yet
  if (settlement && unread.peek().has(id)) unread.value = new Map(unread.peek()).set(id, standingOf(settlement));
}

function standingOf({ outcome, by }: { outcome: string; by: string | null }): Standing {
  if (outcome === "failed" || outcome === "interrupted") return outcome;
  return by === "budget" ? "budget" : "ready";
}

const isNewer = ({ id, updated_at }: ListedSession): boolean => updated_at > (seen.of[id] ?? seen.first);

function note({ id, updated_at }: ListedSession): void {
  seen = { ...kept(), of: { ...kept().of, [id]: updated_at } };
  localStorage.setItem(SEEN, JSON.stringify(seen));
}

function kept(): Seen {
  try {
    const found = JSON.parse(localStorage.getItem(SEEN) ?? "null") as Seen | null;
    if (found) return found;
  } catch {
    // it is begun anew
  }
  const fresh = { first: new Date().toISOString(), of: {} };
  localStorage.setItem(SEEN, JSON.stringify(fresh));
  return fresh;
}
