/** A tab's end of the connection: through the shared worker, or directly where there is none. */
import { effect, signal } from "@preact/signals";
import { isAway, key, needsKey, setKey } from "../api";
import type { FeedEvent } from "../types";
import type { FromWorker, ToWorker } from "./messages";
import { type StreamState, Streams } from "./streams";

type Listener = (events: FeedEvent[]) => void;

export const streamState = signal<StreamState>("idle");
/** Grows when this tab may have missed something: it slept for so long that the worker gave it up. */
export const losses = signal(0);

const listeners = new Map<string, Listener>();
const say = connect();

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

function onEvents(session: string, events: FeedEvent[]): void {
  listeners.get(session)?.(events);
}

function onState(state: StreamState): void {
  streamState.value = state;
  if (state === "away") isAway.value = true;
  if (state === "open") isAway.value = false;
  if (state === "unauthorized") needsKey.value = true;
}

function connect(): (message: ToWorker) => void {
  const say = throughWorker() ?? directly();
  effect(() => {
    if (key.value) say({ type: "key", key: key.value });
  });
  return say;
}

function throughWorker(): ((message: ToWorker) => void) | null {
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
    const post = (message: ToWorker) => port.postMessage(message);
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

function directly(): (message: ToWorker) => void {
  const streams = new Streams({ events: onEvents, state: onState });
  return (message) => {
    if (message.type === "key") streams.setKey(message.key);
    else if (message.type === "watch") streams.watch(message.session, message.after);
    else if (message.type === "unwatch") streams.unwatch(message.session);
  };
}
