/**
 * Which lines of a long conversation are drawn: those near the view. The others are gaps, as high as their lines were
 * when they were drawn, or as they are guessed to be.
 *
 * What must be seen is drawn at once. What is near comes a few lines at a time, when the page has nothing else to do.
 */

/** Lines from one to before another. */
export interface Range {
  from: number;
  to: number;
}

/** Lines above and below the view that are drawn beforehand: one can read on, and the browser's search finds them. */
export const NEAR = 60;
/** Lines that are further away than this are taken off the page. */
const FAR = NEAR + 20;

export interface Sized {
  key: string;
  /** How high it may be, in pixels, as long as nobody has measured it. */
  guess: number;
}

export class Heights {
  readonly #measured = new Map<string, number>();
  #lines: readonly Sized[] = [];
  #tops: number[] = [0];
  #isStale = false;

  note(key: string, height: number): void {
    if (this.#measured.get(key) === height) return;
    this.#measured.set(key, height);
    this.#isStale = true;
  }

  /** How high a line was when it was measured last, if it ever was. */
  known(key: string): number | undefined {
    return this.#measured.get(key);
  }

  /** Put lines on top of one another. */
  stack(lines: readonly Sized[]): void {
    if (lines === this.#lines) return;
    this.#lines = lines;
    this.#isStale = true;
  }

  get count(): number {
    return this.#lines.length;
  }

  /** Where a line begins, in pixels. */
  startOf(key: string): number | null {
    const at = this.#lines.findIndex((line) => line.key === key);
    return at < 0 ? null : this.#top(at);
  }

  /** The height of some lines together, in pixels. */
  of({ from, to }: Range): number {
    return this.#top(to) - this.#top(from);
  }

  /** The lines of which some part stands between two heights: one of them at least, where there are any. */
  within(top: number, bottom: number): Range {
    const from = Math.max(0, Math.min(this.#lastBy(top), this.count - 1));
    return { from, to: Math.min(this.count, Math.max(from, this.#lastBy(bottom)) + 1) };
  }

  #top(line: number): number {
    return this.#placed[Math.min(line, this.count)] ?? 0;
  }

  /** Where each line begins, and the last one ends. Some thousand lines take some ten microseconds. */
  get #placed(): number[] {
    if (!this.#isStale) return this.#tops;
    this.#isStale = false;
    let top = 0;
    this.#tops = [0];
    for (const { key, guess } of this.#lines) {
      top += this.#measured.get(key) ?? guess;
      this.#tops.push(top);
    }
    return this.#tops;
  }

  /** The last line that begins at a height or above it. */
  #lastBy(height: number): number {
    const tops = this.#placed;
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((tops[middle] ?? 0) <= height) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** What is to be drawn next: all that must be, what is drawn and near already, and `more` lines on either side. */
export function nextRange(drawn: Range, must: Range, count: number, more: number): Range {
  const isElsewhere = drawn.to < must.from || must.to < drawn.from;
  const from = isElsewhere ? must.from : Math.min(must.from, Math.max(drawn.from, must.from - FAR));
  const to = isElsewhere ? must.to : Math.max(must.to, Math.min(drawn.to, must.to + FAR));
  return {
    from: Math.max(0, Math.min(from, Math.max(from - more, must.from - NEAR))),
    to: Math.min(count, Math.max(to, Math.min(to + more, must.to + NEAR))),
  };
}

/** The lines of some ranges, each once, in order; and the gaps before, between and after them. */
export function pieces(ranges: Range[], count: number): (number | Range)[] {
  const found: (number | Range)[] = [];
  let next = 0;
  for (const { from, to } of [...ranges].sort((one, other) => one.from - other.from)) {
    if (from > next && from < count) {
      found.push({ from: next, to: from });
      next = from;
    }
    while (next < Math.min(to, count)) found.push(next++);
  }
  if (next < count) found.push({ from: next, to: count });
  return found;
}
