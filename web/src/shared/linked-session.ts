/** A session as a link shows it: what was said, and the answer that is being written, for as long as the link lasts. */
import { batch, signal } from "@preact/signals";
import { ApiError, authorization, call } from "../api";
import { LiveRun } from "../state/live";
import type { RunEvent, SharedSession } from "../types";
import { readEvents } from "../ui/event-stream";

export type LinkState = "loading" | "ready" | "ended" | "sign-in" | "busy" | "failed";

type LinkFrame = RunEvent | { type: "shared.changed" };

const AGAIN = 2_000;
const BUSY = 30_000;

export class LinkedSession {
  readonly state = signal<LinkState>("loading");
  readonly problem = signal("");
  readonly view = signal<SharedSession | null>(null);
  readonly live = signal<LiveRun | null>(null);
  #abort = new AbortController();
  #isLoading = false;
  #isStale = false;

  constructor(readonly token: string) {}

  get path(): string {
    return `/api/shared/${this.token}`;
  }

  close(): void {
    this.#abort.abort();
  }

  /** Show it, and follow it until the link ends or the page is left. */
  async follow(): Promise<void> {
    while (!this.#abort.signal.aborted) {
      try {
        const cursor = await this.#load();
        if (!(await this.#read(cursor))) return;
      } catch (error) {
        if (this.#abort.signal.aborted || this.#isOver(error)) return;
      }
      await new Promise((resolve) => setTimeout(resolve, this.state.value === "busy" ? BUSY : AGAIN));
    }
  }

  async #load(): Promise<string> {
    const view = await call<SharedSession>("GET", this.path, { signal: this.#abort.signal });
    batch(() => {
      this.view.value = view;
      this.state.value = "ready";
      if (!view.active_run || view.active_run.message_id !== this.live.value?.messageId) this.live.value = null;
    });
    return view.cursor;
  }

  /** Whether an error is the end: the link has gone, or asks for a sign-in. After others the page tries again. */
  #isOver(error: unknown): boolean {
    const status = error instanceof ApiError ? error.status : 0;
    this.problem.value = (error as Error).message;
    if (status === 404) this.state.value = "ended";
    else if (status === 401) this.state.value = "sign-in";
    else if (status === 429) this.state.value = "busy";
    else if (!this.view.value) this.state.value = "failed";
    if (status === 404 || status === 401) this.live.value = null;
    return status === 404 || status === 401;
  }

  /** Read the events after a cursor. False if there will be no more. */
  async #read(cursor: string): Promise<boolean> {
    const { signal } = this.#abort;
    const response = await fetch(`${this.path}/events?after=${cursor}`, { headers: authorization(), signal });
    if (response.status === 204) return false;
    if (!response.ok || !response.body) {
      const { error } = await response.json();
      throw new ApiError(response.status, error);
    }
    this.live.value = null; // the answer that is being written is sent again, from its start
    await readEvents<LinkFrame>(response.body, (event) => this.#take(event));
    return true;
  }

  #take(event: LinkFrame): void {
    if (event.type === "shared.changed") return void this.#loadAgain();
    if (event.type === "run.started")
      this.live.value = new LiveRun("", event.message_id ?? "", null, event.model ?? "");
    const run = this.view.value?.active_run;
    if (!this.live.value && run) this.live.value = new LiveRun("", run.message_id ?? "", null, run.model);
    const live = this.live.value;
    if (event.type !== "run.settled") live?.take({ ...event, run: "", seq: live.seq + 1 }); // hidden events have numbers too
  }

  async #loadAgain(): Promise<void> {
    this.#isStale = true;
    if (this.#isLoading) return;
    this.#isLoading = true;
    while (this.#isStale) {
      this.#isStale = false;
      await this.#load().catch(() => {}); // its stream ends too, and tells why
    }
    this.#isLoading = false;
  }
}
