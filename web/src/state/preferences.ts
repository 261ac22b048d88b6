/** What a person has chosen for this browser. Nothing of it leaves the browser. */
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const THEME = "holdfast.theme";

export const theme = signal<Theme>(asTheme(localStorage.getItem(THEME)));
export const isSidebarOpen = signal(false);

/** Whether the list lies over the page: in narrow windows, and on phones that are held sideways. */
export const isDrawer = () => matchMedia("(max-width: 50rem), (max-height: 30rem) and (pointer: coarse)").matches;

/** Wide windows show the list beside the page; it can be put away. */
export const isSidebarHidden = signal(localStorage.getItem("holdfast.sidebar") === "hidden");

function asTheme(value: string | null): Theme {
  return value === "light" || value === "dark" ? value : "system";
}

export function setTheme(value: Theme): void {
  theme.value = value;
  localStorage.setItem(THEME, value);
  if (value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
}

export type Density = "roomy" | "dense";
const DENSITY = "holdfast.density";

export const density = signal<Density>(localStorage.getItem(DENSITY) === "dense" ? "dense" : "roomy");

export function setDensity(value: Density): void {
  density.value = value;
  localStorage.setItem(DENSITY, value);
  if (value === "roomy") delete document.documentElement.dataset.density;
  else document.documentElement.dataset.density = value;
}

/** What Enter does while a response is running. Steering goes to agents; another model gets the message next. */
export type WhileRunning = "queue" | "steer" | "interrupt";
const WHILE_RUNNING = "holdfast.while-running";
const WAYS: WhileRunning[] = ["queue", "steer", "interrupt"];

export const whileRunning = signal<WhileRunning>(
  WAYS.find((way) => way === localStorage.getItem(WHILE_RUNNING)) ?? "queue",
);

export function setWhileRunning(value: WhileRunning): void {
  whileRunning.value = value;
  localStorage.setItem(WHILE_RUNNING, value);
}

export function setSidebarHidden(hidden: boolean): void {
  isSidebarHidden.value = hidden;
  localStorage.setItem("holdfast.sidebar", hidden ? "hidden" : "shown");
}
