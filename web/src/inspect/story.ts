/** What happened in a run, as a short list: words that follow one another are one line. */
import type { FeedEvent, Outcome } from "../types";
import { t } from "../words";

export interface Moment {
  kind: "words" | "thoughts" | "tool" | "notice" | "usage" | "step" | "approval" | "start" | "end";
  label: string;
  detail: string;
  from: number;
  to: number;
  first: number;
}

const JOINED: Record<string, [Moment["kind"], "words" | "thoughts" | "writesCall"]> = {
  "text.delta": ["words", "words"],
  "reasoning.delta": ["thoughts", "thoughts"],
  "tool.delta": ["tool", "writesCall"],
};

export function storyOf(events: FeedEvent[], at: number[]): Moment[] {
  const story: Moment[] = [];
  let count = 0;
  let size = 0;
  let joined = "";
  events.forEach((event, index) => {
    const time = at[index] ?? 0;
    const joins = JOINED[event.type];
    if (!joins) {
      joined = "";
      story.push({ ...told(event), from: time, to: time, first: index });
      return;
    }
    const length = String(event.text ?? event.arguments ?? "").length;
    if (joined === event.type) {
      count++;
      size += length;
    } else {
      [joined, count, size] = [event.type, 1, length];
      story.push({ kind: joins[0], label: t().story[joins[1]], detail: "", from: time, to: time, first: index });
    }
    const moment = story.at(-1)!;
    moment.to = time;
    moment.detail = t().eventsAndCharacters(count, size);
  });
  return story;
}

function told(event: FeedEvent): Pick<Moment, "kind" | "label" | "detail"> {
  const { story } = t();
  switch (event.type) {
    case "run.started":
      return { kind: "start", label: story.started, detail: event.model ?? "" };
    case "tool.call":
      return { kind: "tool", label: story.calls(event.name), detail: event.arguments ?? "" };
    case "tool.progress":
      return { kind: "tool", label: story.toolGoesOn, detail: event.message ?? "" };
    case "tool.result":
      return {
        kind: "tool",
        label: event.is_error ? story.toolFailed : story.toolAnswered,
        detail: String(event.output ?? ""),
      };
    case "notice":
      return { kind: "notice", label: noticed(event.code), detail: event.message ?? "" };
    case "usage":
      return {
        kind: "usage",
        label: story.counted,
        detail: `${t().tokensInOut(event.input_tokens, event.output_tokens)} (${event.source})`,
      };
    case "step.started":
      return { kind: "step", label: story.step(event.step), detail: story.asksModel };
    case "step.finished":
      return {
        kind: "step",
        label: story.stepDone(event.step),
        detail: event.seconds ? t().seconds(event.seconds, 1) : "",
      };
    case "approval.requested":
      return { kind: "approval", label: story.waitsForPerson, detail: event.tool ?? "" };
    case "approval.decided":
      return { kind: "approval", label: story.personSaid(decided(event.decision)), detail: event.note ?? "" };
    case "run.steered":
      return { kind: "approval", label: story.steered, detail: event.text ?? "" };
    case "run.settled":
      return { kind: "end", label: story.settled, detail: ended(event.settlement?.outcome) };
    default:
      return { kind: "notice", label: event.type, detail: "" };
  }
}

const NOTICES: Record<string, "askedAgain" | "otherAnswers" | "waitedForRoom"> = {
  retry: "askedAgain",
  fallback: "otherAnswers",
  waiting: "waitedForRoom",
};

function noticed(code: string): string {
  const known = NOTICES[code];
  return known ? t().story[known] : code;
}

function decided(decision: "allow" | "deny"): string {
  return t().decisions[decision] ?? decision;
}

function ended(outcome: Outcome | undefined): string {
  return outcome ? t().outcomes[outcome] : "";
}

/** How many events with words came in each of so many equal parts of the run. */
export function densityOf(events: FeedEvent[], at: number[], length: number, parts: number): number[] {
  const density = new Array<number>(parts).fill(0);
  events.forEach(({ type }, index) => {
    if (!(type in JOINED)) return;
    const part = Math.min(parts - 1, Math.floor(((at[index] ?? 0) / length) * parts));
    density[part] = density[part]! + 1;
  });
  return density;
}

/** The text and the thoughts up to each event, as lengths: any moment of a replay is a slice. */
export class Words {
  readonly text: string;
  readonly thoughts: string;
  readonly #text: number[] = [];
  readonly #thoughts: number[] = [];

  constructor(events: FeedEvent[]) {
    const [text, thoughts]: [string[], string[]] = [[], []];
    let [said, thought] = [0, 0];
    for (const { type, text: delta = "", choice } of events) {
      if (type === "text.delta" && !choice) said += text.push(delta) && delta.length;
      if (type === "reasoning.delta" && !choice) thought += thoughts.push(delta) && delta.length;
      this.#text.push(said);
      this.#thoughts.push(thought);
    }
    this.text = text.join("");
    this.thoughts = thoughts.join("");
  }

  upTo(index: number): { text: string; thoughts: string } {
    return {
      text: this.text.slice(0, this.#text[index] ?? 0),
      thoughts: this.thoughts.slice(0, this.#thoughts[index] ?? 0),
    };
  }
}

/** The last event that had come by a time, or -1. */
export function lastBy(at: number[], time: number): number {
  let [low, high] = [0, at.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
