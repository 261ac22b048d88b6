/** How this browser's user is notified: by a push service, by the page while it is open, or not at all. */
import { signal } from "@preact/signals";

const NOTIFIES = "holdfast.notifies";

export type Way = "push" | "page";

export const notifies = signal<Way | null>(isPermitted() ? asWay(localStorage.getItem(NOTIFIES)) : null);

export function isPermitted(): boolean {
  return typeof Notification !== "undefined" && Notification.permission === "granted";
}

export function keepNotifies(way: Way | null): void {
  notifies.value = way;
  if (way) localStorage.setItem(NOTIFIES, way);
  else localStorage.removeItem(NOTIFIES);
}

function asWay(kept: string | null): Way | null {
  return kept === "push" || kept === "page" ? kept : null;
}
