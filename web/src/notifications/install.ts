/** Installing the page as an app, where the browser offers that. */
import { signal } from "@preact/signals";
import { renew } from "./browser";
import { notifies } from "./notifies";

interface Offer extends Event {
  prompt(): Promise<unknown>;
}

/** What asks the user; null if the browser offers nothing now. */
export const offer = signal<(() => void) | null>(null);

/** Show notifications from now on, say what the matter is while the server is away, and keep the browser's offer. */
export function startWorker(): void {
  navigator.serviceWorker?.register("/sw.js", { updateViaCache: "none" }).catch(() => {}); // not every window may
  if (notifies.peek()) renew();
  addEventListener("beforeinstallprompt", (event) => {
    event.preventDefault(); // the browser's own would come in the middle of a chat
    offer.value = () => {
      offer.value = null;
      (event as Offer).prompt();
    };
  });
  addEventListener("appinstalled", () => {
    offer.value = null;
  });
}
