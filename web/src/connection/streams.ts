/** The one event stream of this browser: changes of the list, and the feed of every session that some tab shows. */
import { createParser } from "eventsource-parser";
import type { FeedFrame } from "../types";
import { LIST } from "./messages";

export type StreamState = "idle" | "connecting" | "open" | "away" | "unauthorized";

export interface Receiver {
  events(session: string, events: FeedFrame[]): void;
  state(state: StreamState): void;
}

/** The server says that it is alive every ten seconds at the latest; after this many it is not. */
const SILENCE = 25_000;
/** A page that comes back waits no longer than this: a phone closes connections in the background, and says nothing. */
const SILENCE_ON_WAKING = 11_000;
/**
 * Nor longer than this for the answer to an attempt: it may have been made while the network was dead. Of the attempts
 * that follow, the first ones wait for a sixth, a fifth and so on of this: each may use one of the idle connections that
 * a browser keeps, which died with the network.
 */
const UNANSWERED_ON_WAKING = 1000;
const QUICK_ATTEMPTS = 6;
const LONGEST_PAUSE = 5_000;

export class Streams {
  #cursors = new Map<string, string>();
  #key = "";
  #abort: AbortController | null = null;
  #watchdog: Watchdog | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;
  #quickAttempts = 0;
  state: StreamState = "idle";

  constructor(private readonly receiver: Receiver) {
    addEventListener("online", () => this.#connectSoon(0));
  }

  setKey(key: string): void {
    if (key === this.#key) return;
    this.#key = key;
    if (this.#cursors.size) this.#connectSoon(0);
  }

  /** Read a session's feed after a cursor. Where it is being read, it is read again from there: readers skip repeats. */
  watch(session: string, after: string): void {
    const known = this.#cursors.get(session);
    this.#cursors.set(session, known === undefined ? after : session === LIST ? known : earlier(known, after));
    this.#end(); // what the old stream still brings would move the cursor past what has to be read again
    this.#connectSoon(0);
  }

  unwatch(session: string): void {
    if (this.#cursors.delete(session)) this.#connectSoon(200);
  }

  /** Somebody looks at the page again: connect at once if the connection is lost, or silent for too long. */
  wake(): void {
    this.#failures = 0; // what failed while nobody looked makes nobody wait now
    this.#quickAttempts = QUICK_ATTEMPTS;
    if (this.state === "away" || this.#watchdog?.isOverdue()) this.#connectSoon(0);
    else this.#watchdog?.wake();
  }

  #connectSoon(pause: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), pause);
  }

  #tell(state: StreamState): void {
    if (state === this.state) return;
    this.state = state;
    this.receiver.state(state);
  }

  #end(): void {
    this.#abort?.abort();
    this.#abort = null;
  }

  async #connect(): Promise<void> {
    this.#end();
    if (!this.#cursors.size) return this.#tell("idle");
    const abort = new AbortController();
    this.#abort = abort;
    if (this.state === "idle") this.#tell("connecting");
    try {
      await this.#read(abort);
    } catch {
      // Told below: whatever went wrong, the cursors know where to go on.
    }
    if (this.#abort !== abort || this.state === "unauthorized") return;
    if (this.#failures++) this.#tell("away");
    if (this.#quickAttempts-- > 0) return this.#connectSoon(0);
    this.#connectSoon(Math.min(LONGEST_PAUSE, 100 * 2 ** this.#failures) * (0.7 + Math.random() * 0.3));
  }

  async #read(abort: AbortController): Promise<void> {
    const query = new URLSearchParams(
      [...this.#cursors].map(([id, cursor]) => (id === LIST ? [id, cursor] : ["session", `${id}@${cursor}`])),
    );
    const headers: Record<string, string> = this.#key ? { authorization: `Bearer ${this.#key}` } : {};
    const isQuick = this.#quickAttempts > 0;
    const patience = isQuick ? UNANSWERED_ON_WAKING / this.#quickAttempts : SILENCE;
    const watchdog = new Watchdog(() => abort.abort(), patience);
    this.#watchdog = watchdog;
    try {
      const response = await fetch(`/api/events?${query}`, { headers, signal: abort.signal, cache: "no-store" });
      if (response.status === 401) return this.#tell("unauthorized");
      if (!response.ok || !response.body) throw new Error(`the server answered ${response.status}`);
      this.#failures = this.#quickAttempts = 0;
      watchdog.reset();
      this.#tell("open");
      await this.#copy(response.body.getReader(), watchdog, abort.signal);
    } finally {
      watchdog.stop();
    }
  }

  async #copy(reader: ReadableStreamDefaultReader<Uint8Array>, watchdog: Watchdog, signal: AbortSignal): Promise<void> {
    const decoder = new TextDecoder();
    let batch = new Map<string, FeedFrame[]>();
    const parser = createParser({ onEvent: (event) => this.#take(batch, event.id ?? "", event.data) });
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) return;
      watchdog.reset();
      batch = new Map();
      parser.feed(decoder.decode(value, { stream: true }));
      for (const [session, events] of batch) this.receiver.events(session, events);
    }
  }

  #take(batch: Map<string, FeedFrame[]>, id: string, data: string): void {
    const event = JSON.parse(data) as FeedFrame;
    const at = id.lastIndexOf("@");
    const isDeleted = event.type === "session.deleted" && !id.startsWith(`${LIST}@`);
    const session = isDeleted ? event.session_id : id.slice(0, at);
    if (isDeleted) this.#cursors.delete(session);
    else if (this.#cursors.has(session)) this.#cursors.set(session, id.slice(at + 1));
    const events = batch.get(session);
    if (events) events.push(event);
    else batch.set(session, [event]);
  }
}

/** Notices a connection that has gone silent: a closed lid or a lost network says no goodbye. */
class Watchdog {
  #timer: ReturnType<typeof setTimeout> | undefined;
  #heardAt = Date.now();
  #onWaking = UNANSWERED_ON_WAKING;
  constructor(
    private readonly bark: () => void,
    unanswered: number,
  ) {
    this.#set(unanswered);
  }
  /** Something came. */
  reset(): void {
    this.#heardAt = Date.now();
    this.#onWaking = SILENCE_ON_WAKING;
    this.#set(SILENCE);
  }
  isOverdue(): boolean {
    return this.#left() <= 0;
  }
  wake(): void {
    this.#set(Math.max(0, this.#left()));
  }
  /** For how long a page that has come back waits. Timers stand still in one that sleeps: it counts from the clock. */
  #left(): number {
    return this.#heardAt + this.#onWaking - Date.now();
  }
  #set(pause: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.bark, pause);
  }
  stop(): void {
    clearTimeout(this.#timer);
  }
}

/** The earlier of two cursors, at the start of the run that it may stand in: no reader misses anything after it. */
function earlier(one: string, other: string): string {
  return String(Math.min(Number.parseInt(one, 10) || 0, Number.parseInt(other, 10) || 0));
}
