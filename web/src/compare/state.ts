/**
 * The comparison that is open: what the server says of it, and the runs that its panes are at.
 *
 * The panes live by one connection, which this module holds: another view can be looked at meanwhile and the panes go
 * on. They are stopped when the page is closed.
 */
import { batch, signal } from "@preact/signals";
import { api } from "../api";
import { navigate, place } from "../router";
import { LiveRun } from "../state/live";
import { complain } from "../state/toasts";
import type { Content, FeedEvent, Settlement } from "../types";
import { calls, stream, streams } from "./calls";
import type { Asked, Comparison, PaneInfo, Winner } from "./types";

const LOOK_AGAIN = 1_000;

export class OpenComparison {
  readonly info = signal<Comparison | null>(null);
  readonly live = signal<ReadonlyMap<number, LiveRun>>(new Map());
  readonly problem = signal("");
  /** This page holds the connection that the panes live by. */
  readonly isOurs = signal(false);
  #abort = new AbortController();

  constructor(public id: string | null) {}

  get isRunning(): boolean {
    return this.isOurs.value || this.info.value?.status === "running";
  }

  async load(): Promise<void> {
    this.problem.value = "";
    try {
      this.info.value = await calls.get(this.id!);
      if (this.info.value.status === "running") setTimeout(() => open.value === this && this.load(), LOOK_AGAIN);
    } catch (error) {
      this.problem.value = (error as Error).message;
    }
  }

  create(asked: Asked): Promise<boolean> {
    return this.#ask(streams.create, asked);
  }

  turn(prompt: Content): Promise<boolean> {
    return this.#ask(streams.turn(this.id!), { prompt });
  }

  reroll(pane: number): Promise<boolean> {
    return this.#ask(streams.reroll(this.id!, pane), {});
  }

  swap(pane: number, model: string): Promise<boolean> {
    return this.#ask(streams.swap(this.id!, pane), { model });
  }

  async stop(): Promise<void> {
    if (this.id && this.isRunning) await this.#replace(calls.stop(this.id));
  }

  async stopPane(pane: PaneInfo): Promise<void> {
    if (pane.run_id) await api.stop(pane.run_id).catch(complain);
  }

  vote(winner: Winner): Promise<void> {
    return this.#replace(calls.vote(this.id!, winner));
  }

  reveal(): Promise<void> {
    return this.#replace(calls.reveal(this.id!));
  }

  /** Leave, and with that stop whatever still runs. */
  leave(): void {
    this.#abort.abort();
  }

  async #replace(asked: Promise<Comparison>): Promise<void> {
    try {
      this.info.value = await asked;
    } catch (error) {
      complain(error);
    }
  }

  /** Ask, and follow the panes to their end. Resolves once the server has taken it, or has not. */
  #ask(path: string, body: unknown): Promise<boolean> {
    return new Promise((resolve) => {
      this.isOurs.value = true;
      stream(path, body, this.#abort.signal, (event) => {
        this.#take(event);
        resolve(true);
      })
        .catch((error) => this.#abort.signal.aborted || complain(error))
        .finally(() => {
          resolve(false);
          this.isOurs.value = false;
          if (this.info.value?.status === "running" && !this.#abort.signal.aborted) this.load(); // it broke off
        });
    });
  }

  #take(event: FeedEvent): void {
    if (event.type === "comparison.started") return this.#started(event.comparison as Comparison);
    if (event.type === "comparison.settled") return this.#settled(event.comparison as Comparison);
    if (event.pane === undefined) return;
    const pane = event.pane as number;
    if (event.type === "run.started") this.#begin(pane, event);
    this.live.value.get(pane)?.take(event);
    if (event.type === "run.settled") this.#end(pane, event.settlement as Settlement);
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

  #begin(pane: number, event: FeedEvent): void {
    const run = new LiveRun(event.run!, event.run!, null, event.model ?? "");
    this.live.value = new Map(this.live.value).set(pane, run);
    this.#change(pane, { run_id: event.run!, status: "running", settlement: null, metrics: null });
  }

  #end(pane: number, settlement: Settlement): void {
    const run = this.live.value.get(pane);
    run?.end(settlement);
    this.#change(pane, { status: "settled", settlement, text: settlement.text, reasoning: run?.reasoning || null });
    this.#measure(pane);
  }

  /** The figures of a pane are the server's: fetched when it has settled, while others still run. */
  async #measure(pane: number): Promise<void> {
    const { panes } = await calls.get(this.id!).catch(() => ({ panes: [] as PaneInfo[] }));
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
  if (id === null && open.value?.isOurs.value && open.value.id)
    return navigate(`/compare/${open.value.id}`, { replace: true });
  if (open.value && open.value.id === id) return;
  open.value?.leave();
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
