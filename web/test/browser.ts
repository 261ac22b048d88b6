/** The few globals of a browser that the page's modules read. They do nothing: a test replaces what it looks at. */

class Kept implements Storage {
  readonly #items = new Map<string, string>();
  [name: string]: unknown;
  get length(): number {
    return this.#items.size;
  }
  clear(): void {
    this.#items.clear();
  }
  getItem(name: string): string | null {
    return this.#items.get(name) ?? null;
  }
  key(index: number): string | null {
    return [...this.#items.keys()][index] ?? null;
  }
  removeItem(name: string): void {
    this.#items.delete(name);
  }
  setItem(name: string, value: string): void {
    this.#items.set(name, value);
  }
}

const globals = {
  self: globalThis,
  localStorage: new Kept(),
  sessionStorage: new Kept(),
  location: { pathname: "/", hash: "", origin: "http://page" },
  history: { pushState: () => {}, replaceState: () => {} },
  document: { visibilityState: "visible", documentElement: { dataset: {} }, addEventListener: () => {} },
  requestAnimationFrame: (draw: FrameRequestCallback) => Number(setTimeout(() => draw(performance.now()), 16)),
  addEventListener: () => {},
};

for (const [name, value] of Object.entries(globals))
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
