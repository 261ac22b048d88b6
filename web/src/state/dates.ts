/** Sessions under the words that people use for when. */
import type { ListedSession } from "../types";
import { t } from "../words";
import { month } from "../words/count";

const DAY = 86_400_000;

export function grouped(sessions: ListedSession[], now = new Date()): [string, ListedSession[]][] {
  const groups = new Map<string, ListedSession[]>();
  for (const session of sessions) {
    const label = session.pinned ? t().pinned : when(new Date(session.updated_at), now);
    const group = groups.get(label);
    if (group) group.push(session);
    else groups.set(label, [session]);
  }
  return [...groups];
}

function when(at: Date, now: Date): string {
  const today = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const time = at.getTime();
  if (time >= today) return t().today;
  if (time >= today - DAY) return t().yesterday;
  if (time >= today - 7 * DAY) return t().last7Days;
  if (time >= today - 30 * DAY) return t().last30Days;
  return month(at);
}
