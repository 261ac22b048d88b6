/** The page's address as a signal. Links stay links: a click with a modifier opens a tab as anywhere else. */
import { computed, signal } from "@preact/signals";

export const path = signal(location.pathname);
/** The message that the address leads to, if any. */
export const target = signal(targetOf(location.hash));

/** The path of a temporary chat, and its id. No path of a session has this id. */
export const TEMPORARY = "/temporary";

/** Tells whether something that is only on the page would be lost if another path were shown. */
export const wouldLose = signal<() => boolean>(() => false);
/** Where the page goes if its user agrees to lose that. */
export const wanted = signal<string | null>(null);

/** Why the sign-in failed from which the browser comes back, as a code. It is taken out of the address at once. */
export const signInError = new URLSearchParams(location.search).get("sign_in_error");

/** Follow the browser's back and forward from now on. */
export function followHistory(): void {
  if (signInError !== null) history.replaceState(null, "", path.value + location.hash);
  addEventListener("popstate", () => {
    const to = location.pathname + location.hash;
    if (location.pathname === path.value || !wouldLose.value()) return look();
    history.pushState(null, "", path.value); // it has gone already: it comes back to ask
    wanted.value = to;
  });
}

function look(): void {
  path.value = location.pathname;
  target.value = targetOf(location.hash);
}

function targetOf(hash: string): string | null {
  return hash.startsWith("#msg_") ? hash.slice(1) : null;
}

export function navigate(to: string, options: { replace?: boolean } = {}): void {
  if (to === location.pathname + location.hash) return;
  if (wouldLose.value()) wanted.value = to;
  else go(to, options);
}

/** Go there, whatever is lost. */
export function go(to: string, options: { replace?: boolean } = {}): void {
  if (options.replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  look();
}

/** Follow links within the page without loading it again. */
export function followLinks(event: MouseEvent): void {
  const link = (event.target as Element).closest?.("a");
  const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
  if (link.origin !== location.origin || !link.getAttribute("href")?.startsWith("/")) return;
  event.preventDefault();
  navigate(link.pathname + link.hash);
}

const VIEWS = [
  "agents",
  "compare",
  "presets",
  "runs",
  "schedules",
  "settings",
  "status",
  "account",
  "admin",
  "sign-in",
  "first-admin",
  "reset",
] as const;

export type View = "chat" | (typeof VIEWS)[number] | "unknown";

/** The views of people who are not signed in. They stand alone, without the list of sessions. */
const ENTRANCES: ReadonlySet<View> = new Set(["sign-in", "first-admin", "reset"]);

export interface Place {
  view: View;
  id: string | null;
}

export const place = computed<Place>(() => {
  const [, first = "", id = null] = path.value.split("/");
  if (first === "" || first === "s") return { view: "chat", id };
  if (path.value === TEMPORARY) return { view: "chat", id: TEMPORARY };
  const view = VIEWS.find((each) => each === first);
  return view ? { view, id } : { view: "unknown", id: null };
});

export const isAtEntrance = computed(() => ENTRANCES.has(place.value.view));
