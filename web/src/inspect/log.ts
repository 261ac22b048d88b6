/** The log of one run as it was written: every event, and when it came. A run that goes on is read as it grows. */
import { signal } from "@preact/signals";
import { api, authorization, call } from "../api";
import type { NoticeEvent, Run, RunFrame } from "../types";
import { readEvents } from "../ui/event-stream";
import { t } from "../words";

/** What a reader gets first whose cursor was not one of the run: an event without a number. */
type CursorNotice = NoticeEvent & { run: string; seq?: undefined };

const LOOK_AGAIN = 2_000;

export class RunLog {
  readonly run = signal<Run | null>(null);
  readonly problem = signal("");
  /** Why the events cannot be shown although the run can: its log was trimmed, say. */
  readonly missing = signal("");
  /** Grows when events or times have come. */
  readonly version = signal(0);
  events: RunFrame[] = [];
  /** Milliseconds after the start, for each event. */
  at: number[] = [];
  isWhole = false;
  /** The time to first token that the server has measured, once the run has ended. */
  ttft: number | null = null;
  #times: [number, string][] = [];
  #heard: number[] = [];
  #abort = new AbortController();
  #isTold = false;

  constructor(readonly id: string) {}

  async load(): Promise<void> {
    this.problem.value = "";
    try {
      this.run.value = await api.run(this.id);
      await Promise.all([this.#readEvents(), this.#follow()]);
    } catch (error) {
      if (!this.#abort.signal.aborted) this.problem.value = (error as Error).message;
    }
  }

  close(): void {
    this.#abort.abort();
  }

  /** The run's length so far, in milliseconds. */
  get length(): number {
    return Math.max(1, this.at.at(-1) ?? 0);
  }

  async #readEvents(): Promise<void> {
    const { signal } = this.#abort;
    const response = await fetch(`/api/runs/${this.id}/events`, { headers: authorization(), signal });
    if (!response.ok || !response.body) return this.#isMissing(response);
    await readEvents<RunFrame | CursorNotice>(response.body, (event) => {
      if (event.seq === undefined) return; // sent to this reader alone
      this.events.push(event);
      this.#heard.push(performance.now());
      this.#tellSoon();
    });
    this.run.value = await api.run(this.id);
    await this.#readTimes();
    this.isWhole = true;
    this.#place();
  }

  async #isMissing(response: Response): Promise<void> {
    const answer = await response.json().catch(() => null);
    this.missing.value = answer?.error?.message ?? t().serverError(response.status);
    this.isWhole = true;
  }

  async #follow(): Promise<void> {
    while (!this.isWhole && !this.#abort.signal.aborted) {
      await this.#readTimes();
      this.#place();
      await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN));
    }
  }

  async #readTimes(): Promise<void> {
    type Timeline = { times: [number, string][]; ttft_ms: number | null };
    const { times, ttft_ms } = await call<Timeline>("GET", `/api/runs/${this.id}/timeline`);
    this.#times = times;
    this.ttft = ttft_ms;
  }

  #tellSoon(): void {
    if (this.#isTold) return;
    this.#isTold = true;
    setTimeout(() => {
      this.#isTold = false;
      this.#place();
    }, 100);
  }

  /**
   * Give each event its time: that of the first saved step that reaches to it, and the settlement its own. Events that
   * have come since the times were asked for are placed by when they were heard, until they are asked for again.
   */
  #place(): void {
    const run = this.run.value;
    if (!run) return;
    const began = Date.parse(run.started_at ?? run.created_at);
    let step = 0;
    let last = 0;
    let heard = this.#heard[0] ?? 0;
    this.at = this.events.map((event, index) => {
      while ((this.#times[step]?.[0] ?? event.seq) < event.seq) step++;
      const time = event.type === "run.settled" ? run.settled_at : this.#times[step]?.[1];
      const now = this.#heard[index] ?? heard;
      last = Math.max(last, time ? Date.parse(time) - began : last + now - heard);
      heard = now;
      return last;
    });
    this.version.value++;
  }
}
