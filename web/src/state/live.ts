/** The run that is going on: its events, gathered into what can be drawn, once for each frame of the screen. */
import { signal } from "@preact/signals";
import {
  type AnsweredEvent,
  type AskedEvent,
  ignoreUnknown,
  type Run,
  type RunFrame,
  type Settlement,
  type ToolDeltaEvent,
  type ToolProgressEvent,
} from "../types";

export interface ToolActivity {
  id: string;
  name: string;
  arguments: string;
  progress: string;
  /** Its output while it runs. */
  streamed: string;
  output: string | null;
  isError: boolean;
  /** The run ended before it returned. */
  isUnfinished: boolean;
  seconds: number | null;
  /** What a person said who was asked for it. */
  decision: string | null;
  /** The arguments with which it ran, if a person has changed them. */
  edited: string | null;
  /** When it was called, if this tab saw it; else 0. */
  startedAt: number;
}

/** What was said up to some tool calls, those calls, and what was put in after them. */
export interface Segment {
  text: string;
  tools: ToolActivity[];
  inputs: string[];
  /** Where in the text a response was continued that had been cut off. */
  joints?: readonly number[];
}

/** What a person was asked, and has decided. */
export interface Question {
  asked: AskedEvent;
  decision: string | null;
}

/** Where another call of a model goes on with a response. */
export interface Seam {
  model: string;
  at: number;
  reason: string | null;
}

export interface Notice {
  code: string;
  message: string;
  /** When it came, if this tab saw it; else 0. */
  at: number;
}

/** The longest pause between two drawings, in milliseconds. */
const REST = 250;

/** Notices of what a response waits for before it begins, and one that it shows in its own place. */
const PASSING = [
  "starting_tools",
  "fetching_weights",
  "loading_model",
  "model_busy",
  "waiting",
  "new_turn",
  "retry",
  "continuing",
];

export class LiveRun {
  /** Grows with each frame that has something new to draw. */
  readonly version = signal(0);
  text = "";
  reasoning = "";
  /** The answer in the order in which it came about: a chat's has one, an agent's one for each step. */
  segments: Segment[];
  /** The addresses of its pictures. */
  pictures: string[] = [];
  #last: Segment = blankSegment();
  /** It works in steps, between which a message can be put in. */
  readonly isAgent = signal(false);
  notices: Notice[] = [];
  /** Where another call of a model went on with the response. */
  legs: Seam[] = [];
  questions: Question[] = [];
  seq = 0;
  /** When the first word came, and how many events with text have come since. */
  firstWordAt = 0;
  deltas = 0;
  isThinking = false;
  #thinkingAt = 0;
  #thought = 0;
  siblings: string[] = [];
  settlement: Settlement | null = null;
  /** When its last event came, or it began. */
  heardAt = performance.now();
  #isDrawing = false;
  #isStale = false;

  constructor(
    /** Empty as long as it is not known. */
    public id: string,
    readonly messageId: string,
    readonly parentId: string | null,
    public model: string,
    /** The run as it was when this tab came, where it had begun before. */
    readonly joined: Run | null = null,
  ) {
    this.segments = [this.#last];
    this.isAgent.value = joined?.kind === "agent";
    if (joined?.waits_for) this.heardAt -= Math.max(0, Date.now() - Date.parse(joined.waits_for.since));
  }

  /** A run that had begun before this tab came. Its events are all sent again, from the first. */
  static of(run: Run): LiveRun {
    return new LiveRun(run.id, run.message_id ?? run.id, run.parent_id, run.model, run);
  }

  get tools(): ToolActivity[] {
    return this.segments.flatMap(({ tools }) => tools);
  }

  /** For how many milliseconds it has thought; null if this tab has not seen all of it. */
  get thought(): number | null {
    return this.joined ? null : this.#thought;
  }

  /** What is still of interest once the response has begun. */
  get lastingNotices(): Notice[] {
    return this.notices.filter(({ code }) => !PASSING.includes(code));
  }

  /** What a person has to answer before it goes on. */
  get open(): Question[] {
    return this.questions.filter(({ decision }) => decision === null);
  }

  /** A tool is at work. */
  get isCalling(): boolean {
    return this.tools.some(({ output }) => output === null);
  }

  /** Take one event, once. False where one before it is missing. */
  take(event: RunFrame): boolean {
    const { seq } = event;
    if (seq <= this.seq) return true;
    if (seq !== this.seq + 1 && event.type !== "snapshot") return this.#beginLate(event);
    this.seq = seq;
    const now = performance.now();
    if (seq > (this.joined?.seq ?? 0)) this.heardAt = now;
    if (this.#thinkingAt) this.#thought += now - this.#thinkingAt;
    this.#thinkingAt = event.type === "reasoning.delta" ? now : 0;
    this.#apply(event);
    this.#draw();
    return true;
  }

  /** A run of very many events keeps only its last ones; its text so far came with the session. */
  #beginLate(event: RunFrame): boolean {
    const known = this.joined;
    if (this.seq > 0 || !known?.seq) return false;
    this.#retell(known.text);
    this.seq = known.seq;
    return this.take(event);
  }

  end(settlement: Settlement): void {
    this.settlement = settlement;
    this.version.value++;
  }

  #apply(event: RunFrame): void {
    if ("choice" in event && event.choice) return; // one answer is shown: the first
    switch (event.type) {
      case "text.delta":
        this.text += event.text;
        this.#last.text += event.text;
        this.isThinking = false;
        return this.#count();
      case "reasoning.delta":
        this.reasoning += event.text;
        this.isThinking = true;
        return this.#count();
      case "picture":
        this.pictures = [...this.pictures, event.url];
        return this.#count();
      case "tool.delta":
        return this.#toolDelta(event);
      case "tool.call":
        return this.#tool(event.id, { name: event.name, arguments: event.arguments, startedAt: this.#startOfCall() });
      case "tool.progress":
        return this.#progress(event);
      case "tool.result":
        this.questions = this.questions.filter(({ asked, decision }) => decision !== null || asked.call !== event.id);
        return this.#tool(event.id, {
          output: event.output,
          isError: event.is_error,
          seconds: event.seconds,
        });
      case "step.started":
        this.isAgent.value = true;
        if (event.step > 1 && !isBlank(this.#last)) this.#begin();
        return;
      case "run.steered":
        this.#last.inputs = [...this.#last.inputs, event.text];
        return;
      case "approval.requested":
      case "outcome.requested":
      case "input.requested":
        this.questions = [...this.questions, { asked: event, decision: null }];
        return;
      case "approval.decided":
      case "outcome.decided":
      case "input.decided":
        return this.#decide(event);
      case "notice":
        this.notices = [...this.notices, { code: event.code, message: event.message, at: this.#startOfCall() }];
        if (event.model) this.model = event.model;
        return;
      case "leg.started":
        this.model = event.model;
        this.legs = [...this.legs, { model: event.model, at: event.at, reason: event.reason }];
        return;
      case "snapshot":
        this.#retell(event.text);
        this.reasoning = event.reasoning;
        return;
      case "run.started":
      case "tool.started":
      case "step.finished":
      case "usage":
      case "provider.data":
      case "run.settled":
        return; // nothing to draw
      default:
        ignoreUnknown(event);
    }
  }

  #begin(): void {
    this.#last = blankSegment();
    this.segments.push(this.#last);
  }

  /** All of the text at once: where in it the tools were called is not known. */
  #retell(text: string): void {
    this.text = text;
    this.#last = { text, tools: this.tools, inputs: this.segments.flatMap(({ inputs }) => inputs) };
    this.segments = [this.#last];
  }

  #decide(event: AnsweredEvent): void {
    const { asked } = this.questions.find((each) => each.asked.id === event.id) ?? {};
    if (event.type === "approval.decided" && asked?.call)
      this.#tool(asked.call, {
        decision: event.decision,
        edited: event.arguments || null,
        startedAt: this.#startOfCall(),
      });
    this.questions = this.questions.map((each) =>
      each.asked.id === event.id ? { ...each, decision: event.decision } : each,
    );
  }

  /** A tab that joined a run later does not know when a call began. */
  #startOfCall(): number {
    return this.joined && this.seq <= this.joined.seq ? 0 : performance.now();
  }

  #progress({ id, message, output }: ToolProgressEvent): void {
    const before = this.tools.find((tool) => tool.id === id)?.streamed ?? "";
    this.#tool(id, { ...(message && { progress: message }), streamed: before + (output ?? "") });
  }

  #count(): void {
    this.deltas++;
    if (!this.firstWordAt) this.firstWordAt = performance.now();
  }

  #toolDelta(event: ToolDeltaEvent): void {
    const id = event.id || this.#last.tools[event.index]?.id || `call-${event.index}`;
    const before = this.tools.find((tool) => tool.id === id);
    this.#tool(id, {
      name: (before?.name ?? "") + (event.name ?? ""),
      arguments: (before?.arguments ?? "") + (event.arguments ?? ""),
    });
  }

  #tool(id: string, changes: Partial<ToolActivity>): void {
    const of = this.segments.findLast(({ tools }) => tools.some((tool) => tool.id === id)) ?? this.#last;
    const at = of.tools.findIndex((tool) => tool.id === id);
    const changed = { ...(of.tools[at] ?? blankTool(id)), ...changes };
    of.tools = at < 0 ? [...of.tools, changed] : of.tools.with(at, changed);
  }

  /** Draw what is new with the next frame; where drawing takes long, leave the page as much time again for other things. */
  #draw(): void {
    this.#isStale = true;
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    const draw = () => {
      const began = performance.now();
      this.#isStale = false;
      this.version.value++;
      setTimeout(() => setTimeout(() => this.#rest(), Math.min(REST, performance.now() - began)));
    };
    // A hidden tab gets no frames; it is brought up to date now and then, so that its title and its text are right.
    if (document.visibilityState === "visible") requestAnimationFrame(draw);
    else setTimeout(draw, REST);
  }

  #rest(): void {
    this.#isDrawing = false;
    if (this.#isStale) this.#draw();
  }
}

function blankSegment(): Segment {
  return { text: "", tools: [], inputs: [] };
}

function isBlank({ text, tools, inputs }: Segment): boolean {
  return !text && !tools.length && !inputs.length;
}

function blankTool(id: string): ToolActivity {
  return {
    id,
    name: "",
    arguments: "",
    progress: "",
    streamed: "",
    output: null,
    isError: false,
    isUnfinished: false,
    seconds: null,
    decision: null,
    edited: null,
    startedAt: 0,
  };
}
