/**
 * The comparison that is open: what the server says of it, and the runs that its panes are at.
 *
 * The panes go on without the page, as the response of a chat does: it takes them up again when it comes back.
 */
import { batch, signal } from "@preact/signals";
import { api } from "../api";
import { navigate, place } from "../router";
import { LiveRun } from "../state/live";
import { complain } from "../state/toasts";
import type { Comparison, ComparisonStreamFrame, Content, PaneFrame, Pane as PaneInfo, Settlement } from "../types";
import { calls, follow, stream, streams, watch } from "./calls";
import type { Asked, Winner } from "./types";

const LOOK_AGAIN = 1_000;

export class OpenComparison {
  readonly info = signal<Comparison | null>(null);
  readonly live = signal<ReadonlyMap<number, LiveRun>>(new Map());
  /** The synthesis that is being written. */
  readonly synthesis = signal<LiveRun | null>(null);
  readonly problem = signal("");
  /** This page holds the connection that began the panes. */
  readonly isOurs = signal(false);
  #abort = new AbortController();
  #isVoting = false;
  /** The number of the newest request: an earlier one that ends late changes nothing. */
  #asked = 0;
  /** Counts all requests, and says which of them `info` comes from: an answer that is overtaken changes nothing. */
  #requests = 0;
  #shown = 0;

  constructor(public id: string | null) {}

  /** The id that the server gave it. Whatever is done with a comparison is done after that. */
  get #made(): string {
    if (this.id === null) throw new Error("the comparison has not been made yet");
    return this.id;
  }

  get isRunning(): boolean {
    return this.isOurs.value || this.info.value?.status === "running";
  }

  async load(): Promise<void> {
    this.problem.value = "";
    try {
      this.info.value = await calls.get(this.#made);
      if (this.info.value.status === "running") this.#watch();
      this.#followSynthesis();
    } catch (error) {
      this.problem.value = (error as Error).message;
    }
  }

  create(asked: Asked): Promise<boolean> {
    return this.#ask(streams.create, { ...asked, lifetime: "detached" });
  }

  /** Let every pane that did not complete answer again. */
  rerun(): Promise<boolean> {
    return this.#ask(streams.rerun(this.#made), {});
  }

  turn(prompt: Content): Promise<boolean> {
    return this.#ask(streams.turn(this.#made), { prompt });
  }

  reroll(pane: number): Promise<boolean> {
    return this.#ask(streams.reroll(this.#made, pane), {});
  }

  swap(pane: number, model: string): Promise<boolean> {
    return this.#ask(streams.swap(this.#made, pane), { model });
  }

  async stop(): Promise<void> {
    if (this.id && (this.isRunning || this.synthesis.value)) await this.#replace(calls.stop(this.id));
  }

  async stopRun(id: string | null): Promise<void> {
    if (id) await api.stop(id).catch(complain);
  }

  /** Let a model make one answer of those of the panes. */
  async synthesize(model: string): Promise<void> {
    await this.#replace(calls.synthesize(this.#made, model));
    this.#followSynthesis();
  }

  /** Vote, once: the second click of a double click is not meant. */
  async vote(winner: Winner): Promise<void> {
    if (this.#isVoting) return;
    this.#isVoting = true;
    await this.#replace(calls.vote(this.#made, winner));
    this.#isVoting = false;
  }

  reveal(): Promise<void> {
    return this.#replace(calls.reveal(this.#made));
  }

  /** Follow it no more. */
  leave(): void {
    this.#abort.abort();
  }

  /** Follow panes that go on without this page. Where the connection breaks, look again a little later. */
  #watch(): void {
    const number = ++this.#asked;
    watch(this.#made, this.#abort.signal, (event) => this.#take(event))
      .catch(() => {})
      .finally(() => {
        const isDue = number === this.#asked && !this.#abort.signal.aborted && this.info.value?.status === "running";
        if (isDue) setTimeout(() => open.value === this && this.load(), LOOK_AGAIN);
      });
  }

  /** Follow the synthesis to its end. Where the connection breaks, look again a little later. */
  async #followSynthesis(): Promise<void> {
    const made = this.info.value?.synthesis;
    if (made?.status !== "running" || this.synthesis.value?.id === made.run_id) return;
    const run = new LiveRun(made.run_id, made.run_id, null, made.model);
    this.synthesis.value = run;
    await follow(made.run_id, this.#abort.signal, (event) => run.take(event)).catch(() => {});
    if (this.#abort.signal.aborted || this.synthesis.value !== run) return;
    const after = await calls.get(this.#made).catch(() => null);
    const info = this.info.value;
    batch(() => {
      if (after && info) this.info.value = { ...info, synthesis: after.synthesis };
      this.synthesis.value = null;
    });
    if (!after || after.synthesis?.status === "running") setTimeout(() => this.#followSynthesis(), LOOK_AGAIN);
  }

  async #replace(asked: Promise<Comparison>): Promise<void> {
    const mine = ++this.#requests;
    try {
      const info = await asked;
      if (mine < this.#shown) return;
      this.#shown = mine;
      this.info.value = info;
    } catch (error) {
      complain(error);
    }
  }

  /** Ask, and follow the panes to their end. Resolves once the server has taken it, or has not. */
  #ask(path: string, body: unknown): Promise<boolean> {
    const number = ++this.#asked;
    const mine = ++this.#requests;
    return new Promise((resolve) => {
      this.isOurs.value = true;
      stream(path, body, this.#abort.signal, (event) => {
        this.#shown = Math.max(this.#shown, mine);
        this.#take(event);
        resolve(true);
      })
        .catch((error) => this.#abort.signal.aborted || complain(error))
        .finally(() => {
          resolve(false);
          if (number !== this.#asked) return;
          this.isOurs.value = false;
          if (this.info.value?.status === "running" && !this.#abort.signal.aborted) this.load(); // it broke off
        });
    });
  }

  #take(frame: ComparisonStreamFrame): void {
    if (frame.type === "comparison.started") return this.#started(frame.comparison);
    if (frame.type === "comparison.settled") return this.#settled(frame.comparison);
    if ("pane" in frame) this.#takeEvent(frame);
  }

  #takeEvent(event: PaneFrame): void {
    if (event.type === "run.started") this.#begin(event.pane, event.run, event.model ?? "");
    this.live.value.get(event.pane)?.take(event);
    if (event.type === "run.settled") this.#end(event.pane, event.settlement);
  }

  #started(comparison: Comparison): void {
    const isNew = this.id === null;
    batch(() => {
      this.id = comparison.id;
      this.info.value = comparison;
      this.live.value = new Map();
    });
    if (isNew && place.value.view === "compare") navigate(`/compare/${comparison.id}`);
  }

  #settled(comparison: Comparison): void {
    batch(() => {
      this.info.value = comparison;
      this.live.value = new Map();
      this.isOurs.value = false;
    });
  }

  #begin(pane: number, id: string, model: string): void {
    const run = new LiveRun(id, id, null, model);
    this.live.value = new Map(this.live.value).set(pane, run);
    this.#change(pane, { run_id: id, status: "running", settlement: null, metrics: null });
  }

  #end(pane: number, settlement: Settlement): void {
    const run = this.live.value.get(pane);
    run?.end(settlement);
    this.#change(pane, { status: "settled", settlement, text: settlement.text, reasoning: run?.reasoning || null });
    this.#measure(pane);
  }

  /** The figures of a pane are the server's: fetched when it has settled, while others still run. */
  async #measure(pane: number): Promise<void> {
    const { panes } = await calls.get(this.#made).catch(() => ({ panes: [] as PaneInfo[] }));
    const now = this.info.value?.panes[pane];
    const told = panes[pane];
    if (told?.metrics && told.run_id === now?.run_id) this.#change(pane, { metrics: told.metrics });
  }

  #change(pane: number, changes: Partial<PaneInfo>): void {
    const info = this.info.value;
    if (!info) return;
    this.info.value = {
      ...info,
      panes: info.panes.map((each) => (each.pane === pane ? { ...each, ...changes } : each)),
    };
  }
}

/** The one that is open in this tab. */
export const open = signal<OpenComparison | null>(null);

export function openComparison(id: string | null): void {
  const now = open.value;
  if (id === null && now?.isOurs.value && now.id) return navigate(`/compare/${now.id}`, { replace: true });
  if (now && now.id === id) return;
  now?.leave();
  const next = new OpenComparison(id);
  open.value = next;
  if (id) next.load();
}

/** A blank one, whatever is open. */
export function newComparison(): void {
  open.value?.leave();
  open.value = new OpenComparison(null);
  navigate("/compare");
}
