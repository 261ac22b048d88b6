/** Notifications of this browser: by a push service, which needs no open page, or by the page while it is open. */
import { signal } from "@preact/signals";
import { browserOf } from "../people/browser-names";
import { calls } from "./calls";
import { watchInPage } from "./in-page";
import { isPermitted, keepNotifies, notifies } from "./notifies";

const DEVICE = "holdfast.device";

/** The browser refused when it was asked. */
export const isBlocked = signal(false);

export async function turnOn(): Promise<void> {
  if (!isPermitted()) await globalThis.Notification?.requestPermission();
  isBlocked.value = !isPermitted();
  if (!isPermitted()) return;
  keepNotifies("page"); // at once: what happens while a push service is asked is told, too
  watchInPage();
  if (await subscribe()) keepNotifies("push");
}

export async function turnOff(): Promise<void> {
  keepNotifies(null);
  isBlocked.value = false;
  const device = localStorage.getItem(DEVICE);
  localStorage.removeItem(DEVICE);
  if (device) await calls.removeDevice(device).catch(() => {}); // it is gone, or its service will say so
  const registration = await navigator.serviceWorker?.getRegistration();
  await (await registration?.pushManager?.getSubscription())?.unsubscribe();
}

/** At the start of a page: say again who this browser is, as its address at the push service may have changed. */
export async function renew(): Promise<void> {
  watchInPage();
  if (notifies.value === "push") keepNotifies((await subscribe()) ? "push" : "page");
}

/** Whether the server can tell this browser now, whatever the reason. */
async function subscribe(): Promise<boolean> {
  try {
    const { key } = await calls.choose({});
    const { pushManager } = (await navigator.serviceWorker.getRegistration()) ?? {};
    if (!key || !pushManager) return false;
    const { endpoint, keys } = (await subscriptionOf(pushManager, key)).toJSON();
    const { p256dh = "", auth = "" } = keys ?? {};
    const about = { name: browserOf(navigator.userAgent) ?? "", language: document.documentElement.lang };
    const { id } = await calls.addDevice({ endpoint: endpoint ?? "", keys: { p256dh, auth }, ...about });
    localStorage.setItem(DEVICE, id);
    return true;
  } catch {
    return false; // no push service, or none that the server may call
  }
}

/** A subscription with the key of another server, or an older one, has to go first. */
async function subscriptionOf(manager: PushManager, key: string): Promise<PushSubscription> {
  const options = { userVisibleOnly: true, applicationServerKey: key };
  try {
    return await manager.subscribe(options);
  } catch {
    await (await manager.getSubscription())?.unsubscribe();
    return manager.subscribe(options);
  }
}
