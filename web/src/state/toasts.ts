/** Short messages at the foot of the page, some with a way back. */
import { signal } from "@preact/signals";

export interface Toast {
  id: number;
  text: string;
  kind: "plain" | "bad";
  action?: { label: string; run: () => void } | undefined;
}

export const toasts = signal<Toast[]>([]);
let last = 0;

interface ToastOptions {
  kind?: Toast["kind"];
  lasts?: number;
  action?: { label: string; run: () => void } | undefined;
}

export function toast(text: string, { kind = "plain", lasts = 5_000, action }: ToastOptions = {}): void {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-2), { id, text, kind, action }];
  setTimeout(() => dismiss(id), lasts);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

/** Say what went wrong with something that a person asked for. */
export function complain(error: unknown): void {
  toast(error instanceof Error ? error.message : String(error), { kind: "bad", lasts: 8_000 });
}
