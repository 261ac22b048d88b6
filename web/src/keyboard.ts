/** Keys that work everywhere on the page. The list is what the help shows. */
import { signal } from "@preact/signals";
import { navigate, place } from "./router";
import { isGuest } from "./state/caller";
import { current, stopCurrent, toggleTemporary } from "./state/current";
import { isDrawer, isSidebarOpen, setSidebarHidden } from "./state/preferences";
import { query } from "./state/sessions";
import { t } from "./words";

export const isHelpOpen = signal(false);
export const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

export const shortcuts = (): [string[], string][] => [
  [["Enter"], t().send],
  [["Shift", "Enter"], t().keyNewLine],
  [["Mod", "Enter"], t().keyInterrupt],
  [["Esc"], t().keyStop],
  [["↑"], t().keyEdit],
  [["Mod", "K"], t().keySearch],
  [["Mod", "Shift", "O"], t().newChat],
  [["Mod", "Shift", "E"], t().temporaryChat],
  [["Mod", "/"], t().keyHelp],
];

export function listenForKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const what = meaning(event);
    if (!what) return;
    event.preventDefault();
    what();
  });
}

function meaning(event: KeyboardEvent): (() => void) | null {
  const mod = isMac ? event.metaKey : event.ctrlKey;
  const key = event.key.toLowerCase();
  if (mod && !event.shiftKey && key === "k") return focusSearch;
  if (mod && event.shiftKey && key === "o") return newChat;
  if (mod && event.shiftKey && key === "e" && !isGuest.value) return toggleTemporary;
  if (mod && key === "/") return toggleHelp;
  if (event.key === "?" && !isTyping()) return toggleHelp;
  if (event.key === "Escape") return onEscape();
  return null;
}

function onEscape(): (() => void) | null {
  if (document.querySelector("dialog[open], :popover-open")) return null; // it closes that first
  if (isSidebarOpen.value) {
    return () => {
      isSidebarOpen.value = false;
    };
  }
  return place.value.view === "chat" && current.value?.isRunning.value ? stopCurrent : null;
}

function isTyping(): boolean {
  return document.activeElement?.matches("input, textarea, select, [contenteditable]") ?? false;
}

function focusSearch(): void {
  setSidebarHidden(false);
  isSidebarOpen.value = isDrawer();
  const search = () => document.querySelector<HTMLInputElement>("#search");
  search()?.select();
  requestAnimationFrame(() => {
    // A list that was hidden takes the focus only now. Selecting twice would let the next key replace the first letter.
    if (document.activeElement !== search()) search()?.select();
  });
}

export function newChat(): void {
  navigate("/");
  query.value = ""; // the new chat belongs into the list
  isSidebarOpen.value = false;
  requestAnimationFrame(() => document.querySelector<HTMLTextAreaElement>("#composer")?.focus());
}

function toggleHelp(): void {
  isHelpOpen.value = !isHelpOpen.value;
}
