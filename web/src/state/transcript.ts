/**
 * One session as this tab shows it: a view that was loaded once, and every event after it.
 *
 * Events may come twice (a second tab reads the feed again from an earlier place), so each is taken once: entries by
 * their number, events of a run by their seq. Where something is missing the view is loaded again.
 */
import { batch, computed, effect, signal } from "@preact/signals";
import { ApiError, api } from "../api";
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
  type Session,
  type SessionChanged,
  type Settlement,
  type Shared,
} from "../types";
import { LiveRun } from "./live";
import { noteSession } from "./sessions";

/** How a run ended, and where: with its message, or, where it said nothing, after the message that it was to answer. */
export interface Ending {
  runId: string;
  messageId: string | null;
  parentId: string | null;
  model: string;
  settlement: Settlement;
}

/** What is being sent, and what was there before: what tells of it may come before the answer that it was taken. */
interface Sending {
  content: Content;
  before: ReadonlySet<string>;
}

export type Loading = "loading" | "ready" | "missing" | "failed";

export class Transcript {
  readonly loading = signal<Loading>("loading");
  readonly problem = signal("");
  readonly session = signal<Session | null>(null);
  /** Who shares it with this person, if it is another's. */
  readonly shared = signal<Shared | null>(null);
  readonly mayWrite = computed(() => this.shared.value?.may !== "read");
  /** Whether messages of more than one person are in it. */
  readonly hasAuthors = computed(
    () => new Set(this.messages.value.flatMap(({ author }) => author ?? [])).size > 1 || this.shared.value !== null,
  );
  readonly messages = signal<Message[]>([]);
  readonly live = signal<LiveRun | null>(null);
  readonly queued = signal<Queued[]>([]);
  readonly endings = signal<ReadonlyMap<string, Ending>>(new Map());
  /** What this tab has sent and nothing has told of yet. */
  readonly sending = computed(() => this.#sending.value?.content ?? null);
  /** The run that ended last, of those that this tab has seen going on or has started. */
  readonly ended = signal<Ending | null>(null);
  readonly isRunning = computed(() => this.live.value !== null);
  /** The last message of the branch that is shown. */
  readonly head = computed(() => this.messages.value.at(-1) ?? null);

  readonly #sending = signal<Sending | null>(null);
  #n = 0;
  #sent: Run | null = null;
  #unwatch: () => void = () => {};
  #isClosed = false;
  #reload: ReturnType<typeof setTimeout> | null = null;
  #forgetLosses: () => void;

  constructor(readonly id: string) {
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

  /** Look up how one run ended that is not among the newest. */
  async fetchEnding(runId: string): Promise<void> {
    const run = await api.run(runId);
    if (run.settlement) this.#noteEnding(endingOf(run, run.settlement));
  }

  #show(view: OpenSession): void {
    const { messages, active_run, queued, feed, shared, ...session } = view;
    this.session.value = session;
    this.shared.value = shared;
    this.messages.value = messages;
    this.queued.value = queued;
    this.#n = Number.parseInt(feed, 10);
    if (!active_run) this.live.value = null;
    else if (this.live.value?.id !== active_run.id) this.live.value = LiveRun.of(active_run);
    this.loading.value = "ready";
    this.#findSent();
    noteSession({
      ...session,
      active_run: active_run?.id ?? null,
      needs_approval: active_run?.needs_approval ?? false,
    });
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
      noteSession({ id: this.id, needs_approval: live.approvals.some(({ decision }) => decision === null) });
    return isTaken;
  }

  #takeEntry(entry: FeedEntry): void {
    if (entry.n <= this.#n) return;
    this.#n = entry.n;
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
    if (this.#sent?.id === entry.run_id) this.#sent = null;
    if (!live) return;
    if (entry.settlement) this.#end(live, entry.message_id, entry.settlement);
    else this.#loadSoon(); // the run was deleted before its end could be read
    this.live.value = null;
    noteSession({ id: this.id, active_run: null, needs_approval: false });
  }

  #end(live: LiveRun, messageId: string | null, settlement: Settlement): void {
    this.ended.value = { runId: live.id, messageId, parentId: live.parentId, model: live.model, settlement };
    this.#noteEnding(this.ended.value);
    live.end(settlement);
  }

  #noteEnding(ending: Ending): void {
    this.endings.value = new Map(this.endings.value).set(ending.runId, ending);
  }

  #change({ n: _n, type: _type, ...changes }: SessionChanged): void {
    const session = this.session.value;
    if (!session) return;
    const changed = { ...session, ...changes };
    this.session.value = changed;
    noteSession(changed);
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
