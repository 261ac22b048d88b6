/**
 * A temporary chat: its messages are only in this tab, and all of them are sent with each request.
 *
 * The request has no session, so the server stores nothing of it (clause 35.9 of the protocol). Its run lives by this connection:
 * when the tab is left or reloaded the run is stopped, and the chat is gone.
 */
import { batch, signal } from "@preact/signals";
import { ApiError, api, authorization, type IfBusy, isAway, isSignedOut, Unreachable } from "../api";
import { contentOf, textOf } from "../chat/content";
import { attachedOf, givenBack, picturePart } from "../files/attached";
import { TEMPORARY, wouldLose } from "../router";
import type { Content, ErrorInfo, Message, RunFrame, Settlement, Step, StepCall } from "../types";
import { readEvents } from "../ui/event-stream";
import { t } from "../words";
import { type Change, Conversation } from "./conversation";
import { forgetTemporary, giveBack, readDraft } from "./drafts";
import { LiveRun, type Segment, type ToolActivity } from "./live";
import { modelForNew, onBreakOf } from "./models";
import { chooseForNew, presetsKnown, resetForNew, setupForNew } from "./presets";
import { complain } from "./toasts";

export class TemporaryChat extends Conversation {
  override readonly isTemporary = true;
  readonly sending = signal(null);
  /** The messages of all branches. */
  #all = new Map<string, Message>();
  #count = 0;
  /** Ends the requests of the run that is going on. */
  #abort = new AbortController();
  /** Settles when the run that is going on has ended. */
  #running: Promise<void> = Promise.resolve();
  #isQueueHeld = false;

  constructor() {
    super(TEMPORARY);
    this.loading.value = "ready";
    wouldLose.value = () => this.messages.value.length > 0 || readDraft(TEMPORARY) !== "";
    addEventListener("beforeunload", askBeforeUnload);
  }

  close(): void {
    this.queued.value = [];
    this.#abort.abort();
    removeEventListener("beforeunload", askBeforeUnload);
    wouldLose.value = () => false;
    forgetTemporary();
    resetForNew();
  }

  async load(): Promise<void> {} // the server has nothing of it
  async fetchEnding(): Promise<void> {} // every ending was seen here
  async continue(): Promise<void> {} // not offered: the server continues only what it has

  async ask(input: Content, ifBusy: IfBusy): Promise<void> {
    if (this.isRunning.value && ifBusy === "queue") return this.#queue(input);
    await this.#interrupt();
    const head = this.head.value?.id ?? null;
    await this.#answer(this.#add({ role: "user", content: input, parent_id: head }), head);
  }

  async stop(): Promise<void> {
    const live = this.live.value;
    if (live?.id) await api.stop(live.id);
    else if (live) this.#abort.abort(); // the server has not told the run's id yet: a lost connection stops it too
  }

  async stopAll(): Promise<void> {
    this.queued.value = [];
    await this.stop();
  }

  async regenerate(messageId: string, model?: string): Promise<void> {
    const message = this.#all.get(messageId);
    const question = message?.role === "user" ? messageId : message?.parent_id;
    if (!question || this.isRunning.value) return;
    const head = this.head.value?.id ?? null;
    this.#show(question);
    await this.#answer(null, head, model);
  }

  async edit(messageId: string, input: Content): Promise<void> {
    await this.#interrupt();
    const head = this.head.value?.id ?? null;
    const parent = this.#all.get(messageId)?.parent_id ?? null;
    await this.#answer(this.#add({ role: "user", content: input, parent_id: parent }), head);
  }

  async showBranch(messageId: string): Promise<void> {
    let head = messageId;
    for (let next: string | undefined = head; next; next = this.#newestChild(head)) head = next;
    this.#show(head);
  }

  async change(change: Change): Promise<void> {
    chooseForNew(change(setupForNew.value.params));
  }

  async changeQueued(run: string, input: Content): Promise<void> {
    this.queued.value = this.queued.value.map((item) => (item.run_id === run ? { ...item, input } : item));
  }

  async dropQueued(run: string): Promise<void> {
    this.queued.value = this.queued.value.filter((item) => item.run_id !== run);
  }

  async moveQueued(run: string, place: number): Promise<void> {
    const moved = this.queued.value.filter((item) => item.run_id === run);
    const others = this.queued.value.filter((item) => item.run_id !== run);
    this.queued.value = others.toSpliced(place - 1, 0, ...moved);
  }

  async sendQueued(run: string): Promise<void> {
    const item = this.queued.value.find(({ run_id }) => run_id === run);
    await this.dropQueued(run);
    if (item) await this.ask(item.input ?? "", "interrupt");
  }

  #queue(input: Content): void {
    const n = ++this.#count;
    this.queued.value = [...this.queued.value, { n, run_id: `queued-${n}`, input, model: "", created_at: "" }];
  }

  /** Send what has waited longest. What is refused goes back to the message box. */
  async #sendQueued(): Promise<void> {
    const [next] = this.queued.value;
    if (!next || this.#isQueueHeld) return;
    await this.dropQueued(next.run_id);
    const input = next.input ?? "";
    await this.ask(input, "queue").catch((error) => {
      complain(error);
      giveBack(TEMPORARY, textOf(input), givenBack(attachedOf(input)));
    });
  }

  /** Stop the run that is going on, for a message that comes before those that wait. */
  async #interrupt(): Promise<void> {
    while (this.isRunning.value) {
      this.#isQueueHeld = true;
      try {
        await this.stop();
        await this.#running;
      } finally {
        this.#isQueueHeld = false;
      }
    }
  }

  /** Add a message to the branch that is shown, and return its id. */
  #add(given: Partial<Message> & Pick<Message, "role" | "parent_id">): string {
    const { role, parent_id } = given;
    const id = given.id ?? this.#newId();
    const beside = [...this.#all.values()].filter((each) => each.role === role && each.parent_id === parent_id);
    const siblings = [...beside.map((each) => each.id), id];
    for (const each of beside) this.#all.set(each.id, { ...each, siblings });
    this.#all.set(id, { ...BLANK, created_at: new Date().toISOString(), ...given, id, siblings });
    this.#show(id);
    return id;
  }

  #newId(): string {
    return `msg_${++this.#count}`;
  }

  #show(head: string | null): void {
    const branch: Message[] = [];
    for (let at = this.#all.get(head ?? ""); at; at = this.#all.get(at.parent_id ?? "")) branch.unshift(at);
    this.messages.value = branch;
  }

  #newestChild(id: string): string | undefined {
    return [...this.#all.values()].findLast((each) => each.parent_id === id)?.id;
  }

  /**
   * Let a model answer the branch that is shown. Settles when the server has taken the request. If it does not,
   * `asked`, the message that was added for it, is taken back, and the branch that ended with `head` is shown again.
   */
  #answer(asked: string | null, head: string | null, model?: string): Promise<void> {
    const live = new LiveRun("", this.#newId(), this.head.value?.id ?? null, model ?? modelForNew.value ?? "");
    const abort = new AbortController();
    const taken = presetsKnown().then(() => {
      live.model = model ?? setupForNew.value.model ?? modelForNew.value ?? "";
      return this.#request(live, abort.signal);
    });
    this.#abort = abort;
    this.live.value = live;
    this.#running = taken
      .then((settlement) => settlement ?? this.#read(live, abort.signal))
      .then((settlement) => this.#settle(live, settlement))
      .catch(() => {
        if (abort.signal.aborted) return this.#settle(live, { ...UNSETTLED, outcome: "stopped", by: "user" });
        batch(() => this.#takeBack(asked, head));
      });
    this.#running.then(() => this.#sendQueued());
    return taken.then(
      () => {},
      (error) => {
        if (!abort.signal.aborted) throw error;
      },
    );
  }

  #takeBack(asked: string | null, head: string | null): void {
    this.live.value = null;
    if (asked) this.#all.delete(asked);
    this.#show(head);
  }

  /** Send the branch. Returns the settlement of a run that has failed at once, and null of one that has begun. */
  async #request(live: LiveRun, signal: AbortSignal): Promise<Settlement | null> {
    const { system, params, on_break } = setupForNew.value;
    const { store: _, ...sent } = params; // nothing is to be stored at the provider either
    const said = this.messages.value.filter(({ content }) => textOf(content) || attachedOf(content).length);
    const messages = [
      ...(system ? [{ role: "system", content: system }] : []),
      ...said.map(({ role, content }) => ({ role, content })),
    ];
    const ours = { messages, stream: true, background: false, session_id: null };
    const response = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: {
        ...authorization(),
        "content-type": "application/json",
        "holdfast-on-break": on_break ?? onBreakOf(live.model),
      },
      body: JSON.stringify({ ...sent, ...(live.model && { model: live.model }), ...ours }),
      signal,
      cache: "no-store",
    }).catch((error) => {
      if (signal.aborted) throw error;
      isAway.value = true;
      throw new Unreachable();
    });
    if (!response.ok || !response.body) return await this.#refused(live, response);
    live.id = response.headers.get("x-run-id") ?? "";
    response.body.pipeTo(new WritableStream(), { signal }).catch(() => {}); // its events tell what it does
    return null;
  }

  /** A run that failed before its first word has a settlement. Anything else was refused. */
  async #refused(live: LiveRun, response: Response): Promise<Settlement> {
    const answer = await response.json().catch(() => null);
    if (response.status === 401) isSignedOut.value = true;
    const info: ErrorInfo = answer?.error ?? { ...NO_INFO, message: t().serverError(response.status) };
    live.id = answer?.holdfast?.run_id ?? "";
    const run = live.id ? await api.run(live.id).catch(() => null) : null;
    if (!run?.settlement) throw new ApiError(response.status, info);
    return run.settlement;
  }

  /** Read the run to its end. A connection that is lost stops it. */
  async #read(live: LiveRun, signal: AbortSignal): Promise<Settlement> {
    let settlement: Settlement | null = null;
    const take = (event: RunFrame) => {
      if (event.type === "run.settled") settlement = event.settlement;
      else live.take(event);
    };
    try {
      const headers = authorization();
      const { body } = await fetch(`/api/runs/${live.id}/events`, { headers, signal, cache: "no-store" });
      if (body) await readEvents(body, take);
    } catch {
      // told below
    }
    return settlement ?? this.#lost(live);
  }

  #lost({ text }: LiveRun): Settlement {
    this.#abort.abort();
    const error = { ...NO_INFO, message: t().temporaryLost };
    return { ...UNSETTLED, outcome: "failed", error, text, partial: text !== "" };
  }

  #settle(live: LiveRun, settlement: Settlement): void {
    const { id: runId, messageId: id, parentId: parent_id } = live;
    const { outcome, partial, text } = settlement;
    const content = contentOf(text, live.pictures.map(picturePart));
    const model = settlement.answered_by ?? live.model;
    const isSaid = content !== "" || live.tools.length > 0;
    const ending = { runId: runId || id, messageId: isSaid ? id : null, parentId: parent_id, model, settlement };
    const said = { id, role: "assistant" as const, parent_id, content, model, outcome, partial, run_id: ending.runId };
    batch(() => {
      if (isSaid) this.#add({ ...said, reasoning: live.reasoning || null, ...stepsOf(live) });
      this.ended.value = ending;
      this.noteEnding(ending);
      live.end(settlement);
      this.live.value = null;
    });
  }
}

const BLANK = {
  content: null,
  model: null,
  outcome: null,
  partial: false,
  reasoning: null,
  run_id: null,
} satisfies Partial<Message>;

const NO_INFO: ErrorInfo = { message: "", type: "server_error", code: "unknown", param: null, help: null };

/** What is known of a run whose settlement has not come. */
const UNSETTLED = {
  answered_by: null,
  legs: [],
  by: null,
  error: null,
  finish_reason: null,
  partial: false,
  receipt: null,
  text: "",
  usage: { input_tokens: 0, output_tokens: 0, total_tokens: 0, source: "estimated" },
} satisfies Partial<Settlement>;

/** The steps of an agent, as a stored message has them. */
function stepsOf(live: LiveRun): { steps?: Step[] } {
  return live.tools.length || live.segments.length > 1 ? { steps: live.segments.map(stepOf) } : {};
}

function stepOf({ text, tools, inputs }: Segment): Step {
  return { text, tool_calls: tools.map(callOf), inputs };
}

function callOf({ id, name, arguments: given, output, isError, seconds, decision, edited }: ToolActivity): StepCall {
  return {
    id,
    name,
    arguments: given,
    output,
    is_error: isError,
    unfinished: output === null,
    seconds,
    edited,
    decision: decision === "allow" || decision === "deny" ? decision : null,
  };
}

/** The browser asks in its own words. */
function askBeforeUnload(event: BeforeUnloadEvent): void {
  if (wouldLose.value()) event.preventDefault();
}
