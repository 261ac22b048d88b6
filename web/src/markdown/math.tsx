/** A formula. Until KaTeX and its fonts have come, and where it is none, it is shown as it was written. */
import { useEffect, useRef } from "preact/hooks";
import { lazily } from "../ui/lazily";

/** Longer ones are shown as they were written: KaTeX draws at once, and nothing else happens meanwhile. */
const LONGEST = 5_000;

export function Formula({ text, isBlock = false }: { text: string; isBlock?: boolean }) {
  const place = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    if (text.length > LONGEST) return;
    let isCurrent = true;
    lazily(() => import("./katex")).then(
      ({ drawMath }) =>
        drawing.add(() => {
          if (isCurrent && place.current) drawMath(text, place.current, isBlock);
        }),
      () => {}, // it stays as it was written
    );
    return () => {
      isCurrent = false;
    };
  }, [text, isBlock]);
  return (
    <span class={isBlock ? "math math-block" : "math"} ref={place} dir="ltr">
      {text}
    </span>
  );
}

/** Draws as many formulas at a time as fit between two frames: an answer may have thousands of them. */
class Drawing {
  readonly #waiting: (() => void)[] = [];
  #isGoing = false;

  add(draw: () => void): void {
    this.#waiting.push(draw);
    if (!this.#isGoing) this.#go();
  }

  #go(): void {
    const until = performance.now() + 10;
    this.#isGoing = true;
    while (this.#waiting.length && performance.now() < until) this.#waiting.shift()?.();
    if (this.#waiting.length) setTimeout(() => this.#go());
    else this.#isGoing = false;
  }
}

const drawing = new Drawing();
