/** Whether this browser's user wants to be notified. */
import { signal } from "@preact/signals";

const NOTIFIES = "holdfast.notifies";

export const notifies = signal(localStorage.getItem(NOTIFIES) === "yes" && isPermitted());

export function isPermitted(): boolean {
  return typeof Notification !== "undefined" && Notification.permission === "granted";
}

export function keepNotifies(value: boolean): void {
  notifies.value = value;
  if (value) localStorage.setItem(NOTIFIES, "yes");
  else localStorage.removeItem(NOTIFIES);
}
