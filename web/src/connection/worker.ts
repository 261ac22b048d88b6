/** A SharedWorker: holds the browser's one event stream, and hands each tab what it watches. */
import type { FromWorker, ToWorker } from "./messages";
import { Streams } from "./streams";

interface Tab {
  port: MessagePort;
  sessions: Set<string>;
  heardAt: number;
}

const tabs = new Set<Tab>();
let key = "";

const streams = new Streams({
  events: (session, events) => {
    for (const tab of tabs) if (tab.sessions.has(session)) say(tab, { type: "events", session, events });
  },
  state: (state) => {
    for (const tab of tabs) say(tab, { type: "state", state });
  },
});

function say(tab: Tab, message: FromWorker): void {
  tab.port.postMessage(message);
}

function hear(tab: Tab, message: ToWorker): void {
  tab.heardAt = Date.now();
  if (!tabs.has(tab)) comeBack(tab);
  switch (message.type) {
    case "hello":
      if (message.key) setKey(tab, message.key);
      else if (key) say(tab, { type: "key", key });
      // Why the last stream was refused may be over: a tab that has just signed in finds out by itself.
      if (streams.state !== "unauthorized") say(tab, { type: "state", state: streams.state });
      break;
    case "key":
      setKey(tab, message.key);
      break;
    case "watch":
      tab.sessions.add(message.session);
      streams.watch(message.session, message.after);
      break;
    case "unwatch":
      tab.sessions.delete(message.session);
      forgetUnwatched(message.session);
      break;
    case "wake":
      streams.wake();
      break;
    case "bye":
      leave(tab);
      break;
  }
}

/** A tab that slept for so long that it was given up may have missed something, and has to look again. */
function comeBack(tab: Tab): void {
  tab.sessions.clear();
  tabs.add(tab);
  say(tab, { type: "lost" });
}

function setKey(from: Tab, value: string): void {
  key = value;
  streams.setKey(value);
  for (const tab of tabs) if (tab !== from) say(tab, { type: "key", key });
}

function forgetUnwatched(session: string): void {
  if (![...tabs].some((tab) => tab.sessions.has(session))) streams.unwatch(session);
}

function leave(tab: Tab): void {
  tabs.delete(tab);
  for (const session of tab.sessions) forgetUnwatched(session);
}

// A tab that crashed says no goodbye; the others speak at least once a minute, also in the background.
setInterval(() => {
  for (const tab of tabs) if (Date.now() - tab.heardAt > 180_000) leave(tab);
}, 30_000);

addEventListener("connect", (event) => {
  const [port] = (event as MessageEvent).ports;
  if (!port) return;
  const tab: Tab = { port, sessions: new Set(), heardAt: Date.now() };
  tabs.add(tab);
  port.onmessage = (message: MessageEvent<ToWorker>) => hear(tab, message.data);
});
