/** A reference to an element, for handlers and effects: these run only while the element is on the page. */
import { useMemo } from "preact/hooks";

class ElementRef<T extends Element> {
  #element: T | null = null;

  get current(): T {
    if (!this.#element) throw new Error("the element is not on the page");
    return this.#element;
  }

  set current(element: T | null) {
    this.#element = element;
  }
}

export function useElement<T extends Element>(): ElementRef<T> {
  return useMemo(() => new ElementRef<T>(), []);
}
