/**
 * The view of a conversation: what of it is drawn, and where its reader is.
 *
 * It follows the end of an answer for as long as its reader is there, and stays put when they scroll up. What is drawn
 * above the view and turns out higher than was guessed moves nothing: the browser sees to that, or, where it cannot, we do.
 */
import { signal } from "@preact/signals";
import { Heights, nextRange, type Range, type Sized } from "./window";

/** Closer to the end than this is at the end. */
const AT_END = 80;
/** Pixels above and below the view that are drawn with it. */
const MARGIN = 400;
/** Lines that are drawn at a time when there is nothing else to do. */
const A_FEW = 3;
/** The newest lines are always there: the end is never a gap, and an answer that ends is not drawn anew. */
const NEWEST = 3;

const keepsPlace = () => CSS.supports("overflow-anchor", "auto");
const knowsIdle = "requestIdleCallback" in self; // not everywhere yet
const whenIdle = (then: () => void): number =>
  knowsIdle ? requestIdleCallback(then, { timeout: 2_000 }) : Number(setTimeout(then, 50));
const notIdle = (id: number): void => (knowsIdle ? cancelIdleCallback(id) : clearTimeout(id));

export class ConversationView {
  readonly isAtEnd = signal(true);
  /** Grows when other lines are to be drawn. */
  readonly version = signal(0);
  readonly heights = new Heights();
  #drawn: Range = { from: 0, to: 0 };
  #lines: readonly Sized[] = [];
  #box: HTMLElement | null = null;
  #sticks = true;
  #lastTop = 0;
  #idle = 0;
  #target: string | null = null;
  /** A line in sight and how far below the view's top it begins. */
  #anchor: { key: string; top: number } | null = null;
  readonly #elements = new Map<string, HTMLElement>();
  readonly #sizes = new ResizeObserver((entries) => this.#measure(entries));

  /** The lines to draw: those near the view, the newest, and whatever has to stay. */
  ranges(lines: readonly Sized[], staying: (string | null)[]): Range[] {
    const isFirst = !this.#lines.length && lines.length > 0;
    this.#lines = lines;
    this.heights.stack(lines);
    if (isFirst) this.#drawn = this.#atFirst();
    const count = lines.length;
    const held = [...staying, this.#focused()].filter((key) => key !== null);
    const places = held.map((key) => lines.findIndex((line) => line.key === key)).filter((at) => at >= 0);
    return [this.#drawn, { from: Math.max(0, count - NEWEST), to: count }, ...places.map((at) => one(at))];
  }

  #atFirst(): Range {
    const whole = this.heights.of({ from: 0, to: this.heights.count });
    return this.heights.within(whole - innerHeight, whole);
  }

  /** The line with the focus stays, however far its reader scrolls away from it. */
  #focused(): string | null {
    const line = document.activeElement?.closest<HTMLElement>(".line");
    return line && this.#box?.contains(line) ? (line.dataset.line ?? null) : null;
  }

  attach(box: HTMLElement): () => void {
    this.#box = box;
    const onScroll = () => this.#onScroll();
    const own = new ResizeObserver(() => this.#settle());
    own.observe(box);
    own.observe(box.firstElementChild!);
    box.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      own.disconnect();
      this.#sizes.disconnect();
      notIdle(this.#idle);
      box.removeEventListener("scroll", onScroll);
    };
  }

  observe(key: string, element: HTMLElement): () => void {
    this.#elements.set(key, element);
    this.#sizes.observe(element, { box: "border-box" });
    return () => {
      this.#sizes.unobserve(element);
      if (this.#elements.get(key) === element) this.#elements.delete(key);
    };
  }

  /** After something was drawn. What has another size now is told by its observer, when the browser has laid it out. */
  drawn(): void {
    if (this.#target) this.#settle();
  }

  /** Stand where one stood, and see what is near now. */
  #settle(): void {
    if (this.#target) this.#toTarget();
    else if (this.#sticks) this.#toBottom();
    else if (!keepsPlace()) this.#hold();
    this.#look(0);
  }

  toEnd(): void {
    this.#sticks = true;
    this.isAtEnd.value = true;
    this.#toBottom();
    this.#look(0);
  }

  /** Go to a line, wherever it is. False where there is none of that name. */
  show(key: string): boolean {
    const at = this.#lines.findIndex((line) => line.key === key);
    if (at < 0) return false;
    this.#sticks = false;
    this.#target = key;
    this.#draw(one(at));
    return true;
  }

  #toTarget(): void {
    const element = this.#elements.get(this.#target!);
    if (!element) return;
    this.#target = null;
    element.scrollIntoView({ block: "start" });
    this.#remember();
  }

  #toBottom(): void {
    this.#box!.scrollTop = this.#box!.scrollHeight;
  }

  #onScroll(): void {
    const { scrollTop, scrollHeight, clientHeight } = this.#box!;
    const isNear = scrollHeight - scrollTop - clientHeight < AT_END;
    const wentUp = scrollTop < this.#lastTop - 2;
    this.#lastTop = scrollTop;
    if (isNear) this.#sticks = true;
    else if (wentUp) this.#sticks = false;
    this.isAtEnd.value = isNear || this.#sticks;
    this.#remember();
    this.#look(0);
  }

  #measure(entries: ResizeObserverEntry[]): void {
    for (const { target, borderBoxSize } of entries) {
      const height = borderBoxSize[0]?.blockSize ?? 0;
      if (height) this.heights.note((target as HTMLElement).dataset.line!, height);
    }
    this.#settle();
  }

  /** Draw what must be seen and is not there; the rest of what is near comes when there is time. */
  #look(more: number): void {
    const { scrollTop, clientHeight } = this.#box!;
    const must = this.heights.within(scrollTop - MARGIN, scrollTop + clientHeight + MARGIN);
    const next = nextRange(this.#drawn, must, this.heights.count, more);
    const then = nextRange(next, must, this.heights.count, A_FEW);
    if (next.from !== this.#drawn.from || next.to !== this.#drawn.to) this.#draw(next);
    if ((then.from !== next.from || then.to !== next.to) && !this.#idle)
      this.#idle = whenIdle(() => {
        this.#idle = 0;
        if (this.#box?.isConnected) this.#look(A_FEW);
      });
  }

  #draw(range: Range): void {
    this.#drawn = range;
    this.version.value++;
  }

  #remember(): void {
    if (keepsPlace()) return;
    const edge = this.#box!.getBoundingClientRect().top;
    this.#anchor = null;
    for (const [key, element] of this.#elements) {
      const { top, bottom } = element.getBoundingClientRect();
      if (bottom > edge && (!this.#anchor || top - edge < this.#anchor.top)) this.#anchor = { key, top: top - edge };
    }
  }

  /** Keep the line in sight where it was: for browsers that do not do so by themselves. */
  #hold(): void {
    const element = this.#anchor && this.#elements.get(this.#anchor.key);
    if (!element) return this.#remember();
    const moved = element.getBoundingClientRect().top - this.#box!.getBoundingClientRect().top - this.#anchor!.top;
    if (Math.abs(moved) >= 1) this.#box!.scrollTop += moved;
  }
}

const one = (at: number): Range => ({ from: at, to: at + 1 });
