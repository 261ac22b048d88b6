/** What happened in a run, as a short list: words that follow one another are one line. */
import type { AnsweredEvent, ReasoningEvent, RunFrame, TextEvent, ToolDeltaEvent } from "../types";
import { t } from "../words";

export interface Moment {
  kind: "words" | "thoughts" | "tool" | "notice" | "usage" | "step" | "approval" | "start" | "end";
  label: string;
  detail: string;
  from: number;
  to: number;
  first: number;
}

/** An event that is one of many: those that follow one another are one line. */
type Piece = TextEvent | ReasoningEvent | ToolDeltaEvent;

const JOINED: Record<Piece["type"], [Moment["kind"], "output" | "reasoning" | "writesCall"]> = {
  "text.delta": ["words", "output"],
  "reasoning.delta": ["thoughts", "reasoning"],
  "tool.delta": ["tool", "writesCall"],
};

const isPiece = <Event extends { type: string }>(event: Event): event is Event & Piece => event.type in JOINED;

const textOf = (piece: Piece): string => (piece.type === "tool.delta" ? (piece.arguments ?? "") : piece.text);

export function storyOf(events: RunFrame[], at: number[]): Moment[] {
  const story: Moment[] = [];
  let count = 0;
  let size = 0;
  let joined = "";
  events.forEach((event, index) => {
    const time = at[index] ?? 0;
    if (!isPiece(event)) {
      joined = "";
      story.push({ ...told(event), from: time, to: time, first: index });
      return;
    }
    const [kind, label] = JOINED[event.type];
    const { length } = textOf(event);
    const before = story.at(-1);
    if (before && joined === event.type) [count, size] = [count + 1, size + length];
    else [joined, count, size] = [event.type, 1, length];
    const detail = t().eventsAndCharacters(count, size);
    if (before && count > 1) Object.assign(before, { to: time, detail });
    else story.push({ kind, label: t().story[label], detail, from: time, to: time, first: index });
  });
  return story;
}

function told(event: Exclude<RunFrame, Piece>): Pick<Moment, "kind" | "label" | "detail"> {
  const { story } = t();
  switch (event.type) {
    case "run.started":
      return { kind: "start", label: story.started, detail: event.model ?? "" };
    case "tool.call":
      return { kind: "tool", label: story.toolCall(event.name), detail: event.arguments };
    case "tool.started":
      return { kind: "tool", label: story.toolStarted, detail: event.effect_id };
    case "tool.progress":
      return { kind: "tool", label: story.toolProgress, detail: event.message ?? "" };
    case "tool.result":
      return {
        kind: "tool",
        label: event.is_error ? story.toolFailed : story.toolResult,
        detail: event.output,
      };
    case "notice":
      return { kind: "notice", label: noticed(event.code), detail: event.message };
    case "leg.started":
      return { kind: "notice", label: story.wentOn, detail: t().wentOn(event.model) };
    case "usage":
      return {
        kind: "usage",
        label: story.usage,
        detail: `${t().tokensInOut(event.input_tokens, event.output_tokens)} (${t().usageSource[event.source]})`,
      };
    case "step.started":
      return { kind: "step", label: story.step(event.step), detail: story.modelRequest };
    case "step.finished":
      return {
        kind: "step",
        label: story.stepDone(event.step),
        detail: event.seconds ? t().seconds(event.seconds, 1) : "",
      };
    case "approval.requested":
      return { kind: "approval", label: story.waitingForApproval, detail: event.tool };
    case "outcome.requested":
      return { kind: "approval", label: story.mayHaveRun, detail: event.tool };
    case "input.requested":
      return { kind: "approval", label: story.asked, detail: event.message };
    case "approval.decided":
    case "outcome.decided":
    case "input.decided":
      return { kind: "approval", label: decided(event.decision), detail: event.note ?? "" };
    case "run.steered":
      return { kind: "approval", label: story.steered, detail: event.text };
    case "run.settled":
      return { kind: "end", label: story.finished, detail: t().outcomes[event.settlement.outcome] };
    case "picture":
      return { kind: "tool", label: t().imageAlt, detail: "" };
    case "snapshot":
    case "provider.data":
      return { kind: "notice", label: event.type, detail: "" };
    default:
      return unknown(event);
  }
}

const NOTICES: Record<string, "retried" | "goesOn" | "fallbackUsed" | "waitedForSlot" | "startingTools"> = {
  retry: "retried",
  continuing: "goesOn",
  fallback: "fallbackUsed",
  waiting: "waitedForSlot",
  starting_tools: "startingTools",
};

function noticed(code: string): string {
  const known = NOTICES[code];
  return known ? t().story[known] : code;
}

function decided(decision: AnsweredEvent["decision"]): string {
  return t().decisions[decision] ?? decision;
}

/** An event of a newer server, by its name. */
function unknown(event: never): Pick<Moment, "kind" | "label" | "detail"> {
  return { kind: "notice", label: (event as RunFrame).type, detail: "" };
}

/** How many events with words came in each of so many equal parts of the run. */
export function densityOf(events: RunFrame[], at: number[], length: number, parts: number): number[] {
  const density = new Array<number>(parts).fill(0);
  events.forEach((event, index) => {
    if (!isPiece(event)) return;
    const part = Math.min(parts - 1, Math.floor(((at[index] ?? 0) / length) * parts));
    density[part] = (density[part] ?? 0) + 1;
  });
  return density;
}

/** The text and the thoughts up to each event, as lengths: any moment of a replay is a slice. */
export class Words {
  readonly text: string;
  readonly thoughts: string;
  readonly #text: number[] = [];
  readonly #thoughts: number[] = [];

  constructor(events: RunFrame[]) {
    const [text, thoughts]: [string[], string[]] = [[], []];
    let [said, thought] = [0, 0];
    for (const event of events) {
      if (event.type === "text.delta" && !event.choice) said += text.push(event.text) && event.text.length;
      if (event.type === "reasoning.delta" && !event.choice) thought += thoughts.push(event.text) && event.text.length;
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
    if ((at[middle] ?? 0) <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
