/**
 * One session as this tab shows it: a view that was loaded once, and every event after it.
 *
 * Events may come twice (a second tab reads the feed again from an earlier place), so each is taken once: entries by
 * their number, events of a run by their seq. Where something is missing the view is loaded again.
 */
import { batch, computed, effect, signal } from "@preact/signals";
import { ApiError, api, type IfBusy } from "../api";
import { isSameContent } from "../chat/content";
import { losses, watch } from "../connection";
import {
  type Content,
  type FeedEntry,
  type FeedFrame,
  ignoreUnknown,
  type Message,
  type OpenSession,
  type Queued,
  type Run,
  type RunBegan,
  type RunEnded,
  type RunFrame,
  type RunQueued,
  type SessionChanged,
  type Settlement,
} from "../types";
import { type Change, Conversation, type Ending } from "./conversation";
import { LiveRun } from "./live";
import { noteSession } from "./sessions";

/** What is being sent, and what was there before: what tells of it may come before the answer that it was taken. */
interface Sending {
  content: Content;
  before: ReadonlySet<string>;
}

export class Transcript extends Conversation {
  /** What this tab has sent and nothing has told of yet. */
  readonly sending = computed(() => this.#sending.value?.content ?? null);

  readonly #sending = signal<Sending | null>(null);
  #sent: Run | null = null;
  #unwatch: () => void = () => {};
  #isClosed = false;
  #isBeginning = false;
  #reload: ReturnType<typeof setTimeout> | null = null;
  #forgetLosses: () => void;
  /** Changes and messages that the server has not confirmed yet. What is sent after them must not overtake them. */
  #changes: Promise<unknown> = Promise.resolve();

  constructor(id: string) {
    super(id);
    let first = true;
    this.#forgetLosses = effect(() => {
      losses.value;
      if (first) first = false;
      else queueMicrotask(() => this.load());
    });
    this.load();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#reload ?? undefined);
    this.#unwatch();
    this.#forgetLosses();
  }

  async load(): Promise<void> {
    try {
      const view = await api.session(this.id);
      if (this.#isClosed) return;
      batch(() => this.#show(view));
      this.#unwatch();
      this.#unwatch = watch(this.id, view.feed, (events) => batch(() => this.#take(events)));
      await this.#loadEndings();
    } catch (error) {
      if (this.loading.value === "ready" && !(error instanceof ApiError)) return;
      this.loading.value = error instanceof ApiError && error.status === 404 ? "missing" : "failed";
      this.problem.value = (error as Error).message;
    }
  }

  async ask(input: Content, ifBusy: IfBusy): Promise<void> {
    this.send(input);
    try {
      await this.#inTurn(async () => this.noteSent(await api.start(this.id, input, { if_busy: ifBusy })));
    } catch (error) {
      this.send(null);
      throw error;
    }
  }

  async stop(): Promise<void> {
    if (this.live.value) await api.stop(this.live.value.id);
  }

  async stopAll(): Promise<void> {
    await api.stopSession(this.id);
  }

  regenerate(messageId: string, model?: string): Promise<void> {
    return this.#begin(() => api.regenerate(this.id, { message_id: messageId, model }));
  }

  continue(messageId: string): Promise<void> {
    // With the model that the picker shows: the server's default is the one that wrote the message.
    return this.#begin(() => api.continue(this.id, { message_id: messageId, model: this.session.value?.model }));
  }

  /** Let a response begin, once: the second click of a double click is not meant. */
  async #begin(begin: () => Promise<unknown>): Promise<void> {
    if (this.#isBeginning) return;
    this.#isBeginning = true;
    try {
      await this.#changes;
      await begin();
    } finally {
      this.#isBeginning = false;
    }
  }

  async edit(messageId: string, input: Content): Promise<void> {
    await this.#changes;
    await api.edit(this.id, input, { message_id: messageId, if_busy: this.isRunning.value ? "interrupt" : "reject" });
  }

  async showBranch(messageId: string): Promise<void> {
    await api.changeSession(this.id, { head_id: messageId });
    await this.load();
  }

  change(change: Change): Promise<void> {
    return this.#inTurn(async () => {
      const session = await api.changeSession(this.id, change(this.session.value?.params ?? {}));
      this.session.value = session;
      noteSession(session);
    });
  }

  /** Ask the server for one thing after the other: no message overtakes another, or a change that was made before. */
  #inTurn(ask: () => Promise<void>): Promise<void> {
    const taken = this.#changes.then(ask);
    this.#changes = taken.catch(() => {});
    return taken;
  }

  async changeQueued(run: string, input: Content): Promise<void> {
    await api.changeQueued(this.id, run, { input });
  }

  async moveQueued(run: string, place: number): Promise<void> {
    await api.changeQueued(this.id, run, { place });
  }

  async sendQueued(run: string): Promise<void> {
    await api.sendQueued(this.id, run);
  }

  async dropQueued(run: string): Promise<void> {
    await api.dropQueued(this.id, run);
  }

  /** Show a message while it is being sent; null where it was not taken. */
  send(content: Content | null): void {
    const before = [...this.messages.value.map(({ id }) => id), ...this.queued.value.map(({ run_id }) => run_id)];
    this.#sending.value = content === null ? null : { content, before: new Set(before) };
  }

  /** The run that answers what was sent. It can be over before the page has been told of its beginning. */
  noteSent(run: Run): void {
    this.#sent = run;
    batch(() => this.#findSent());
  }

  /** What was sent is no longer on its way once it is on the page or in the queue, however it came there. */
  #findSent(): void {
    const run = this.#sent;
    if (this.#isTold(run)) this.#sending.value = null;
    const ending = run && this.endings.value.get(run.id);
    if (!ending) return;
    this.ended.value = ending;
    this.#sent = null;
  }

  #isTold(run: Run | null): boolean {
    const sending = this.#sending.value;
    if (!sending) return false;
    const isIt = (id: string, content: Message["content"]) =>
      !sending.before.has(id) && isSameContent(content, sending.content);
    return (
      this.messages.value.some(
        ({ id, role, content }) => id === run?.parent_id || (role === "user" && isIt(id, content)),
      ) || this.queued.value.some(({ run_id, input }) => run_id === run?.id || isIt(run_id, input))
    );
  }

  /** Look again: once for all that has just come, and never in a hurry. */
  #loadSoon(): void {
    this.#reload ??= setTimeout(() => {
      this.#reload = null;
      this.load();
    }, 200);
  }

  /** How the newest runs ended: what they cost, and why those failed that left no message. */
  async #loadEndings(): Promise<void> {
    const { runs } = await api.runs({ session_id: this.id, limit: "60" });
    const endings = new Map(this.endings.value);
    for (const run of runs)
      if (run.settlement && !endings.has(run.id)) endings.set(run.id, endingOf(run, run.settlement));
    batch(() => {
      this.endings.value = endings;
      this.#findSent();
    });
  }

  async fetchEnding(runId: string): Promise<void> {
    const run = await api.run(runId);
    if (run.settlement) this.noteEnding(endingOf(run, run.settlement));
  }

  #show(view: OpenSession): void {
    const { messages, active_run, queued, feed, shared, ...session } = view;
    this.session.value = session;
    this.shared.value = shared;
    this.messages.value = messages;
    this.queued.value = queued;
    this.read.value = Number.parseInt(feed, 10);
    if (!active_run) this.live.value = null;
    else if (this.live.value?.id !== active_run.id) this.live.value = LiveRun.of(active_run);
    this.loading.value = "ready";
    this.#findSent();
    this.#note({
      ...session,
      active_run: active_run?.id ?? null,
      needs_approval: active_run?.needs_approval ?? false,
    });
  }

  /** Let the list know of it, unless it is another person's: those are listed apart. */
  #note(session: Parameters<typeof noteSession>[0]): void {
    if (!this.shared.value) noteSession(session);
  }

  #take(frames: FeedFrame[]): void {
    for (const frame of frames) {
      if (frame.type === "session.deleted") this.loading.value = "missing";
      else if ("n" in frame) this.#takeEntry(frame);
      else if ("run" in frame && this.live.value?.id === frame.run && !this.#takeEvent(this.live.value, frame))
        return this.#loadSoon();
    }
  }

  /** Take an event of the run that is going on. The list learns at once whether it waits for approval. */
  #takeEvent(live: LiveRun, frame: RunFrame): boolean {
    const isTaken = live.take(frame);
    if (frame.type === "approval.requested" || frame.type === "approval.decided")
      noteSession({ id: this.id, needs_approval: live.open.length > 0 });
    return isTaken;
  }

  #takeEntry(entry: FeedEntry): void {
    if (entry.n <= this.read.peek()) return;
    this.read.value = entry.n;
    switch (entry.type) {
      case "message.added":
      case "message.changed":
        return this.#addMessage(entry.message);
      case "run.queued":
      case "queue.changed":
        return this.#queue(entry);
      case "run.started":
        return this.#start(entry);
      case "run.settled":
        return this.#settle(entry);
      case "session.changed":
        return this.#change(entry);
      default:
        ignoreUnknown(entry);
    }
  }

  #addMessage(message: Message): void {
    const shown = this.messages.value;
    const same = shown.findIndex((each) => each.id === message.id);
    if (same >= 0) {
      this.messages.value = shown.with(same, { ...shown[same], ...message });
      return;
    }
    const parent = message.parent_id === null ? -1 : shown.findIndex((each) => each.id === message.parent_id);
    if (message.parent_id !== null && parent < 0) return this.#loadSoon(); // on a branch that is not shown here
    const instead = shown[parent + 1];
    const known = instead?.role === message.role ? (instead.siblings ?? [instead.id]) : this.#replaced(message);
    this.messages.value = [...shown.slice(0, parent + 1), { ...message, siblings: [...known, message.id] }];
    this.#findSent();
  }

  /** The siblings of an answer that was taken off the page when the run began that answers anew. */
  #replaced(message: Message): string[] {
    const live = this.live.value;
    return live && live.messageId === message.id ? live.siblings : [];
  }

  #queue(entry: RunQueued): void {
    const input = entry.input.at(-1)?.content ?? "";
    const item: Queued = { n: entry.queue_number, run_id: entry.run_id, input, model: "", created_at: "" };
    const others = this.queued.value.filter((each) => each.run_id !== item.run_id);
    this.queued.value = [...others, item].sort((a, b) => a.n - b.n);
    this.#findSent();
  }

  #start(entry: RunBegan): void {
    this.queued.value = this.queued.value.filter((each) => each.run_id !== entry.run_id);
    const shown = this.messages.value;
    const parent = shown.findIndex((each) => each.id === entry.parent_id);
    const instead = shown[parent + 1];
    const live = new LiveRun(entry.run_id, entry.message_id ?? entry.run_id, entry.parent_id, entry.model);
    if (instead?.role === "assistant" && instead.id !== entry.message_id)
      live.siblings = instead.siblings ?? [instead.id];
    if (parent >= 0 && instead && instead.id !== entry.message_id) this.messages.value = shown.slice(0, parent + 1);
    this.live.value = live;
    noteSession({ id: this.id, active_run: live.id, needs_approval: false });
  }

  #settle(entry: RunEnded): void {
    const live = this.live.value?.id === entry.run_id ? this.live.value : null;
    this.queued.value = this.queued.value.filter((each) => each.run_id !== entry.run_id);
    if (!live) return this.#endSent(entry);
    if (this.#sent?.id === entry.run_id) this.#sent = null;
    if (entry.settlement) this.#end(live, entry.message_id, entry.settlement);
    else this.#loadSoon(); // the run was deleted before its end could be read
    this.live.value = null;
    noteSession({ id: this.id, active_run: null, needs_approval: false });
  }

  /** A run that ended while the view was made is not going on in it. The events after the view tell its end. */
  #endSent({ run_id, message_id, settlement }: RunEnded): void {
    if (this.#sent?.id !== run_id) return;
    if (settlement) this.noteEnding(endingOf({ ...this.#sent, message_id }, settlement));
    this.#findSent();
    this.#sent = null;
  }

  #end(live: LiveRun, messageId: string | null, settlement: Settlement): void {
    this.ended.value = { runId: live.id, messageId, parentId: live.parentId, model: live.model, settlement };
    this.noteEnding(this.ended.value);
    live.end(settlement);
  }

  #change({ n: _n, type: _type, ...changes }: SessionChanged): void {
    const session = this.session.value;
    if (!session) return;
    const changed = { ...session, ...changes };
    this.session.value = changed;
    this.#note(changed);
    if ("head_id" in changes && changes.head_id !== this.head.value?.id) this.#loadSoon();
  }
}

function endingOf(run: Run, settlement: Settlement): Ending {
  return {
    runId: run.id,
    messageId: run.message_id,
    parentId: run.parent_id,
    model: run.model,
    settlement,
  };
}
