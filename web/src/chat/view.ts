/**
 * The view of a conversation: what of it is drawn, and where its reader is.
 *
 * The reader's place is the end of the conversation, a line that stays where it is in the view, or wherever they scrolled
 * to. The heights of lines are guesses until they are laid out, so the place is found again after every layout.
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

/** A line, and how far below the view's top it begins. */
interface Anchor {
  key: string;
  top: number;
}

export class ConversationView {
  readonly isAtEnd = signal(true);
  /** Grows when other lines are to be drawn. */
  readonly version = signal(0);
  readonly heights = new Heights();
  #drawn: Range = { from: 0, to: 0 };
  #lines: readonly Sized[] = [];
  #box: HTMLElement | null = null;
  /** Null: the browser keeps the reader's place. */
  #place: "end" | Anchor | null = "end";
  /** Where the view was last. A scroll to another place is the reader's. */
  #lastTop = 0;
  #idle = 0;
  readonly #elements = new Map<string, HTMLElement>();
  readonly #sizes = new ResizeObserver((entries) => this.#measure(entries));

  /** The lines to draw: those near the view, the newest, and whatever has to stay. */
  ranges(lines: readonly Sized[], staying: (string | null)[]): Range[] {
    const isNews = lines !== this.#lines;
    this.#lines = lines;
    this.heights.stack(lines);
    const count = lines.length;
    if (isNews && this.#place === "end") this.#drawn = nextRange(this.#drawn, this.#atEnd(), count, 0);
    const held = [...staying, this.#focused()].filter((key) => key !== null);
    const places = held.map((key) => lines.findIndex((line) => line.key === key)).filter((at) => at >= 0);
    return [this.#drawn, { from: Math.max(0, count - NEWEST), to: count }, ...places.map((at) => one(at))];
  }

  /** The lines that a reader at the end sees, as far as heights are known: another branch is there all at once. */
  #atEnd(): Range {
    const whole = this.heights.of({ from: 0, to: this.heights.count });
    return this.heights.within(whole - innerHeight, whole);
  }

  /** The line with the focus stays, however far its reader scrolls away from it. */
  #focused(): string | null {
    const line = document.activeElement?.closest<HTMLElement>(".line");
    return line && this.#box?.contains(line) ? (line.dataset.line ?? null) : null;
  }

  /** The scrolling element. The view does nothing before it is on the page. */
  get #attached(): HTMLElement {
    if (!this.#box) throw new Error("the view is not attached");
    return this.#box;
  }

  attach(box: HTMLElement): () => void {
    this.#box = box;
    const onScroll = () => this.#onScroll();
    const own = new ResizeObserver(() => this.#settle());
    own.observe(box);
    if (box.firstElementChild) own.observe(box.firstElementChild);
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
    if (typeof this.#place === "object" && this.#place) this.#settle();
  }

  /** Go back to the reader's place, and see what is near now. */
  #settle(): void {
    if (this.#place === "end") this.#attached.scrollTop = this.#attached.scrollHeight;
    else if (this.#place) this.#hold(this.#place);
    if (this.#place) this.#lastTop = this.#attached.scrollTop; // ours: a reader may scroll before the browser tells of it
    this.#look(0);
    this.#tellIfAtEnd();
  }

  toEnd(): void {
    this.#goTo("end");
    this.#settle();
  }

  /** Go to a line, and stay with it until the reader scrolls. False if there is none of that name. */
  show(key: string): boolean {
    const at = this.#lines.findIndex((line) => line.key === key);
    if (at < 0) return false;
    this.#goTo({ key, top: 0 });
    this.#draw(one(at));
    return true;
  }

  /** The line of a name, if it is drawn. */
  drawnLine(key: string): HTMLElement | null {
    return this.#elements.get(key) ?? null;
  }

  /** Go to a place in a line that is drawn: so many pixels below its top, in the upper part of the view. */
  showWithin(key: string, below: number): void {
    this.#goTo({ key, top: Math.min(0, this.#attached.clientHeight / 3 - below) });
    this.#settle();
  }

  /** Only one of us may move the view: what the browser does for its own anchor would look like a reader's scroll. */
  #goTo(place: "end" | Anchor | null): void {
    this.#place = place;
    this.#attached.style.setProperty("overflow-anchor", place && place !== "end" ? "none" : "");
  }

  #hold({ key, top }: Anchor): void {
    const element = this.#elements.get(key);
    if (!element) return;
    const moved = element.getBoundingClientRect().top - this.#edge() - top;
    if (Math.abs(moved) >= 1) this.#attached.scrollTop += moved;
  }

  #onScroll(): void {
    const before = this.#lastTop;
    const { scrollTop } = this.#attached;
    this.#lastTop = scrollTop;
    if (this.#place === "end" ? scrollTop < before - 2 : Math.abs(scrollTop - before) > 1) this.#follow();
    this.#look(0);
    this.#tellIfAtEnd();
  }

  /** The reader has scrolled: their place is where they are now. */
  #follow(): void {
    if (this.#isNearEnd()) this.#goTo("end");
    else this.#goTo(keepsPlace() ? null : this.#nearest());
  }

  #isNearEnd(): boolean {
    const { scrollTop, scrollHeight, clientHeight } = this.#attached;
    return scrollHeight - scrollTop - clientHeight < AT_END;
  }

  #tellIfAtEnd(): void {
    this.isAtEnd.value = this.#place === "end" || this.#isNearEnd();
  }

  #measure(entries: ResizeObserverEntry[]): void {
    for (const { target, borderBoxSize } of entries) {
      const height = borderBoxSize[0]?.blockSize ?? 0;
      if (height) this.heights.note((target as HTMLElement).dataset.line ?? "", height);
    }
    this.#settle();
  }

  /** Draw what must be seen and is not there; the rest of what is near comes when there is time. */
  #look(more: number): void {
    const top = this.#top();
    const must = this.heights.within(top - MARGIN, top + this.#attached.clientHeight + MARGIN);
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

  /** Where the view begins, as the heights count. Gaps are drawn by older heights, so a line that is there tells it. */
  #top(): number {
    const line = this.#nearest();
    const start = line && this.heights.startOf(line.key);
    return line && start !== null ? start - line.top : this.#attached.scrollTop;
  }

  /** The line that begins nearest to the view's top. */
  #nearest(): Anchor | null {
    const edge = this.#edge();
    let nearest: Anchor | null = null;
    for (const [key, element] of this.#elements) {
      const top = element.getBoundingClientRect().top - edge;
      if (!nearest || Math.abs(top) < Math.abs(nearest.top)) nearest = { key, top };
    }
    return nearest;
  }

  #edge(): number {
    return this.#attached.getBoundingClientRect().top;
  }
}

const one = (at: number): Range => ({ from: at, to: at + 1 });
