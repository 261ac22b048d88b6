import { expect, test, vi } from "vitest";

/** Every module of the page but those that a page or a worker begins with. */
const MODULES = import.meta.glob(["../src/**/*.{ts,tsx}", "!../src/main.tsx", "!../src/connection/worker.ts"]);

test("no module does anything when it is imported", async () => {
  const starts = ["fetch", "setInterval", "addEventListener", "queueMicrotask", "requestAnimationFrame"] as const;
  const spies = starts.map((name) => vi.spyOn(globalThis, name));
  const store = vi.spyOn(localStorage, "setItem");
  for (const load of Object.values(MODULES)) await load();

  expect(Object.keys(MODULES).length).toBeGreaterThan(80);
  expect(starts.filter((_, at) => spies[at]?.mock.calls.length)).toEqual([]);
  expect(store).not.toHaveBeenCalled();
});
