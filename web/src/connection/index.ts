/** A tab's end of the connection: through the shared worker, or directly where there is none. */
import { effect, signal } from "@preact/signals";
import { isAway, isSignedOut, key, setKey } from "../api";
import type { FeedFrame } from "../types";
import type { FromWorker, ToWorker } from "./messages";
import type { StreamState } from "./streams";

type Listener = (events: FeedFrame[]) => void;

export const streamState = signal<StreamState>("idle");
/** Grows when this tab may have missed something: it slept for so long that the worker gave it up. */
export const losses = signal(0);

type Say = (message: ToWorker) => void;

const listeners = new Map<string, Listener>();
let say: Say = () => {
  throw new Error("the connection was not started");
};

/** Connect this tab. The page does so once, before it shows anything. */
export function startConnection(): void {
  say = throughWorker() ?? directly();
  effect(() => {
    if (key.value) say({ type: "key", key: key.value });
  });
  const wake = () => say({ type: "wake" });
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && wake());
  document.addEventListener("resume", wake);
  addEventListener("pageshow", ({ persisted }) => persisted && wake());
  addEventListener("online", wake); // not every browser tells its workers
}

/** Forget the key, here and in every other tab of this browser. */
export function forgetKey(): void {
  setKey("");
  say({ type: "key", key: "" });
}

/** Hear what happens in a session after a cursor, until the returned function is called. */
export function watch(session: string, after: string, listener: Listener): () => void {
  listeners.set(session, listener);
  say({ type: "watch", session, after });
  return () => {
    if (listeners.get(session) !== listener) return;
    listeners.delete(session);
    say({ type: "unwatch", session });
  };
}

function onEvents(session: string, events: FeedFrame[]): void {
  listeners.get(session)?.(events);
}

function onState(state: StreamState): void {
  streamState.value = state;
  if (state === "away") isAway.value = true;
  if (state === "open") isAway.value = false;
  if (state === "unauthorized") isSignedOut.value = true;
}

function throughWorker(): Say | null {
  if (typeof SharedWorker === "undefined") return null;
  try {
    const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: "holdfast-1" });
    const { port } = worker;
    port.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      if (data.type === "events") onEvents(data.session, data.events);
      else if (data.type === "state") onState(data.state);
      else if (data.type === "lost") losses.value++;
      else if (data.key !== key.value) setKey(data.key);
    };
    const post: Say = (message) => port.postMessage(message);
    post({ type: "hello", key: key.value });
    setInterval(() => post({ type: "alive" }), 30_000);
    addEventListener("pagehide", (event) => {
      if (!event.persisted) post({ type: "bye" });
    });
    return post;
  } catch {
    return null; // private windows of some browsers refuse shared workers
  }
}

/** Most browsers have the worker, so what reads the stream is fetched. */
function directly(): Say {
  const reading = import("./streams").then(({ Streams }) => new Streams({ events: onEvents, state: onState }));
  return async (message) => {
    const streams = await reading;
    if (message.type === "key") streams.setKey(message.key);
    else if (message.type === "watch") streams.watch(message.session, message.after);
    else if (message.type === "unwatch") streams.unwatch(message.session);
    else if (message.type === "wake") streams.wake();
  };
}
