/** What is wrong with the server while it is: it cannot be reached, or it cannot save. */
import { effect, signal } from "@preact/signals";
import { isAway } from "../api";
import { current } from "./current";

/** A response stands still because the server cannot save it. */
export const isNotSaving = signal(false);

/** A response that is silent for so long, in milliseconds, makes the page ask whether the server can save. */
const SILENCE = 4_000;

/** While the server cannot be reached, ask every two seconds whether it is back. */
export function watchServer(): void {
  effect(() => {
    if (!isAway.value) return;
    const timer = setInterval(async () => {
      const response = await fetch("/health", { cache: "no-store" }).catch(() => null);
      if (response?.ok) isAway.value = false;
    }, 2_000);
    return () => clearInterval(timer);
  });
  effect(() => {
    const live = current.value?.isTemporary ? null : current.value?.live.value; // a temporary chat is not saved at all
    isNotSaving.value = false;
    if (!live) return;
    let heardAt = performance.now();
    const forget = effect(() => {
      live.version.value;
      heardAt = performance.now();
      isNotSaving.value = false;
    });
    const timer = setInterval(async () => {
      if (performance.now() - heardAt >= SILENCE && !isAway.value) isNotSaving.value = await refusesToSave();
    }, SILENCE);
    return () => {
      clearInterval(timer);
      forget();
    };
  });
}

async function refusesToSave(): Promise<boolean> {
  const response = await fetch("/ready", { cache: "no-store" }).catch(() => null);
  if (response?.status !== 503) return false;
  const answer = await response.json().catch(() => null);
  return answer?.error?.code === "store_unavailable";
}
