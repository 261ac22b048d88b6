import { describe, expect, test } from "vitest";
import { Heights, NEAR, nextRange, pieces, type Range, type Sized } from "../src/chat/window";

const lines = (count: number, guess = 100): Sized[] =>
  Array.from({ length: count }, (_, index) => ({ key: `line ${index}`, guess }));

function stacked(count: number, measured: Record<number, number> = {}): Heights {
  const heights = new Heights();
  for (const [at, height] of Object.entries(measured)) heights.note(`line ${at}`, height);
  heights.stack(lines(count));
  return heights;
}

/** Numbers that look random and are the same each time. */
function* numbers(seed: number): Generator<number, never> {
  for (let state = seed; ; ) {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    yield state / 2_147_483_648;
  }
}

describe("heights", () => {
  test("a line is as high as it was measured, or as it is guessed", () => {
    const heights = stacked(3, { 1: 250 });

    expect([heights.startOf("line 1"), heights.startOf("line 2"), heights.of({ from: 0, to: 3 })]).toEqual([
      100, 350, 450,
    ]);
  });

  test("a new measure moves what stands below", () => {
    const heights = stacked(3);
    const before = heights.startOf("line 2");
    heights.note("line 0", 10);

    expect([before, heights.startOf("line 2"), heights.known("line 0")]).toEqual([200, 110, 10]);
  });

  test("a line that is not there begins nowhere", () => {
    expect(stacked(2).startOf("line 9")).toBeNull();
  });

  test("the lines within a view are those of which some part is in it, and never none", () => {
    const heights = stacked(10);

    expect(heights.within(150, 320)).toEqual({ from: 1, to: 4 });
    expect(heights.within(-500, -100)).toEqual({ from: 0, to: 1 });
    expect(heights.within(5_000, 6_000)).toEqual({ from: 9, to: 10 });
    expect(stacked(0).within(0, 100)).toEqual({ from: 0, to: 0 });
  });
});

describe("what is drawn next", () => {
  test("the view at once, and a few lines more on either side", () => {
    expect(nextRange({ from: 50, to: 60 }, { from: 50, to: 60 }, 200, 3)).toEqual({ from: 47, to: 63 });
  });

  test("no more than is near", () => {
    const must: Range = { from: 500, to: 510 };
    let drawn = must;
    for (let i = 0; i < 200; i++) drawn = nextRange(drawn, must, 1_000, 3);

    expect(drawn).toEqual({ from: 500 - NEAR, to: 510 + NEAR });
  });

  test("after a jump only the new place", () => {
    expect(nextRange({ from: 0, to: 70 }, { from: 500, to: 510 }, 1_000, 0)).toEqual({ from: 500, to: 510 });
  });

  test("wherever one scrolls, the view is drawn and what is far away is not", () => {
    const random = numbers(7);
    let drawn: Range = { from: 0, to: 10 };
    for (let i = 0; i < 2_000; i++) {
      const from = Math.floor(random.next().value * 990);
      const must = { from, to: from + 10 };
      drawn = nextRange(drawn, must, 1_000, 3);

      expect(drawn.from).toBeLessThanOrEqual(must.from);
      expect(drawn.to).toBeGreaterThanOrEqual(must.to);
      expect(drawn.to - drawn.from).toBeLessThanOrEqual(10 + 2 * (NEAR + 20));
      expect([drawn.from >= 0, drawn.to <= 1_000]).toEqual([true, true]);
    }
  });
});

describe("pieces", () => {
  test("each line once, in order, with the gaps before, between and after", () => {
    expect(
      pieces(
        [
          { from: 6, to: 8 },
          { from: 2, to: 4 },
          { from: 3, to: 5 },
        ],
        10,
      ),
    ).toEqual([{ from: 0, to: 2 }, 2, 3, 4, { from: 5, to: 6 }, 6, 7, { from: 8, to: 10 }]);
  });

  test("every line is drawn or in a gap, whatever the ranges are", () => {
    const random = numbers(11);
    for (let i = 0; i < 500; i++) {
      const ranges = Array.from({ length: 4 }, () => {
        const from = Math.floor(random.next().value * 60);
        return { from, to: from + Math.floor(random.next().value * 20) };
      });
      const found = pieces(ranges, 50).flatMap((piece) =>
        typeof piece === "number" ? [piece] : Array.from({ length: piece.to - piece.from }, (_, at) => piece.from + at),
      );

      expect(found).toEqual(Array.from({ length: 50 }, (_, at) => at));
    }
  });
});
