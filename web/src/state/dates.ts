/** Sessions under the words that people use for when. */
import type { ListedSession } from "../types";

const DAY = 86_400_000;

export function grouped(sessions: ListedSession[], now = new Date()): [string, ListedSession[]][] {
  const groups = new Map<string, ListedSession[]>();
  for (const session of sessions) {
    const label = session.pinned ? "Pinned" : when(new Date(session.updated_at), now);
    const group = groups.get(label);
    if (group) group.push(session);
    else groups.set(label, [session]);
  }
  return [...groups];
}

function when(at: Date, now: Date): string {
  const today = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const time = at.getTime();
  if (time >= today) return "Today";
  if (time >= today - DAY) return "Yesterday";
  if (time >= today - 7 * DAY) return "The last 7 days";
  if (time >= today - 30 * DAY) return "The last 30 days";
  return at.toLocaleDateString(undefined, { month: "long", year: "numeric" });
}
