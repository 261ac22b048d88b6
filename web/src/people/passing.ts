/** In and out: what happens to this browser's tabs when a person signs in or out. */

import { call, key } from "../api";
import { forgetKey } from "../connection";
import { place, wouldLose } from "../router";
import { forgetDrafts } from "../state/drafts";

const CHANNEL = "holdfast.person";

/** The path that an address asks to be led to. Only one of this server: a link must not lead people elsewhere. */
export function nextPath(search: string, origin: string): string {
  const wanted = new URLSearchParams(search).get("next") ?? "";
  if (!/^\/(?![/\\])/.test(wanted)) return "/";
  const url = URL.parse(wanted, origin);
  return url?.origin === origin && !url.pathname.startsWith("//") ? url.pathname + url.search + url.hash : "/";
}

/** Where to go after the sign-in: the page that was asked for, which is this one unless this is the sign-in itself. */
export function placeToGo(): string {
  if (place.value.view === "sign-in") return nextPath(location.search, location.origin);
  return place.value.view === "first-admin" || place.value.view === "reset" ? "/" : location.pathname + location.hash;
}

/**
 * Go on after a sign-in. Every tab is loaded anew: what it shows may be another person's.
 * A key is forgotten, because it would count before the sign-in.
 */
export async function enter(): Promise<void> {
  if (key.value) await withoutKey();
  tellOtherTabs();
  go(placeToGo());
}

/** Go on with a key, which this tab has by now. Where the page was only covered, it comes back by itself. */
export function enterWithKey(): void {
  if (place.value.view === "sign-in") go(placeToGo());
}

/** Sign out in all tabs of this browser. */
export async function leave(): Promise<void> {
  await hearNothing();
  await call("POST", "/api/sign-out");
  gone();
}

/** Forget the key of this browser. */
export async function withoutKey(): Promise<void> {
  await hearNothing();
  forgetKey();
}

/** Notifications end first, while the server takes that from whoever leaves. */
async function hearNothing(): Promise<void> {
  const { turnOff } = await import("../notifications/browser");
  await turnOff();
}

/** Nobody is signed in any more: show so in all tabs of this browser. */
export function gone(): void {
  forgetDrafts();
  tellOtherTabs();
  go("/sign-in");
}

/** Load this tab anew, from now on, when another one has signed in or out. */
export function followOtherTabs(): void {
  new BroadcastChannel(CHANNEL).onmessage = () => go(placeToGo());
}

function tellOtherTabs(): void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.postMessage(null);
  channel.close();
}

function go(path: string): void {
  wouldLose.value = () => false; // what the next person must not read is lost without a question
  if (path === location.pathname + location.hash) location.reload();
  else location.replace(path);
}
