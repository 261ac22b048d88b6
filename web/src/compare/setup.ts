/** What was chosen for comparisons last, kept in this browser. */
import { signal } from "@preact/signals";

export const FEWEST = 2;
export const MOST = 8;
const KEPT = "holdfast.compare";

interface Setup {
  models: string[];
  blind: boolean;
  order: "parallel" | "sequential";
  kind: string;
  system: string;
  /** The model that makes one answer of all; empty until one was chosen. */
  synthesis: string;
}

const BLANK: Setup = { models: [], blind: true, order: "parallel", kind: "", system: "", synthesis: "" };

export const setup = signal<Setup>(read());

export function change(changes: Partial<Setup>): void {
  setup.value = { ...setup.value, ...changes };
  localStorage.setItem(KEPT, JSON.stringify(setup.value));
}

function read(): Setup {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "{}") as Partial<Setup>;
    return { ...BLANK, ...kept, models: (kept.models ?? []).filter((id) => typeof id === "string").slice(0, MOST) };
  } catch {
    return BLANK;
  }
}
