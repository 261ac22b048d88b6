/** The session that this tab shows, and the one that is about to be made. */
import { effect, signal, untracked } from "@preact/signals";
import { ApiError, api, type IfBusy, isAway, key, Unreachable } from "../api";
import { navigate, place } from "../router";
import type { Content, Session } from "../types";
import { t } from "../words";
import { modelForNew, rememberModel } from "./models";
import { noteSession } from "./sessions";
import { complain, toast } from "./toasts";
import { Transcript } from "./transcript";

export type Setup = Pick<Session, "model" | "system" | "params">;

export const current = signal<Transcript | null>(null);
/** Changes of a session that the server has not confirmed yet. What is sent after them must not overtake them. */
let changes: Promise<unknown> = Promise.resolve();
/** What the next new session will have. */
export const setupForNew = signal<Setup>({ model: null, system: null, params: {} });

/** Show the session of the page's address from now on. */
export function followPlace(): void {
  effect(() => {
    const { view, id } = place.value;
    if (view !== "chat") return;
    untracked(() => show(id));
  });
  // What could not be loaded while the server was away, or without a key, is loaded when it is back, or there is one.
  effect(() => {
    key.value;
    if (isAway.value) return;
    untracked(() => {
      if (current.value?.loading.value === "failed") current.value.load();
    });
  });
}

function show(id: string | null): void {
  if (current.value?.id === id) return;
  current.value?.close();
  current.value = id ? new Transcript(id) : null;
}

/** Whether a message was taken, and by which session, or, where it was not, which one it was for. */
interface Sent {
  isTaken: boolean;
  place: string | null;
  /** Why it was not taken, where that is told beside it and not in passing. */
  why?: string;
}

/** Send a message: in the session that is shown, or in a new one. */
export async function sendMessage(input: Content, ifBusy: IfBusy = "reject"): Promise<Sent> {
  let place = current.value?.id ?? null;
  try {
    const transcript = current.value ?? (await begin());
    place = transcript.id;
    transcript.send(input);
    try {
      await changes;
      transcript.noteSent(await api.start(transcript.id, input, { if_busy: ifBusy }));
    } catch (error) {
      transcript.send(null);
      throw error;
    }
    return { isTaken: true, place };
  } catch (error) {
    if (error instanceof Unreachable) toast(t().notSent, { kind: "bad" });
    else complain(error);
    return { isTaken: false, place };
  }
}

/** Put a message into the agent that is at work. Where it takes none, `why` says so. */
export async function steerRun(input: string): Promise<Sent> {
  const live = current.value?.live.value;
  const place = current.value?.id ?? null;
  try {
    if (!live) throw new Error(t().justEnded);
    await api.steer(live.id, input);
    return { isTaken: true, place };
  } catch (error) {
    return { isTaken: false, place, why: t().notSteered((error as Error).message) };
  }
}

async function begin(): Promise<Transcript> {
  const setup = setupForNew.value;
  const session = await api.createSession({ ...setup, model: setup.model ?? modelForNew.value });
  noteSession({ ...session, active_run: null, needs_approval: false });
  navigate(`/s/${session.id}`);
  setupForNew.value = { model: null, system: null, params: {} };
  if (!current.value) throw new Error("the new session is not shown");
  return current.value;
}

/** Do something with the session that is shown; a view that has become stale is loaded again. */
export async function act(what: (transcript: Transcript) => Promise<unknown>): Promise<void> {
  const transcript = current.value;
  if (!transcript) return;
  try {
    await what(transcript);
  } catch (error) {
    complain(error);
    if (error instanceof ApiError && (error.status === 409 || error.status === 404)) transcript.load();
  }
}

export const stopCurrent = () =>
  act(async ({ live }) => {
    if (live.value) await api.stop(live.value.id);
  });

export const regenerate = (messageId: string, model?: string) =>
  act(async (it) => {
    await changes;
    await api.regenerate(it.id, { message_id: messageId, ...(model && { model }) });
  });

export const continueAnswer = (messageId: string) =>
  act(async (it) => {
    await changes;
    await api.continue(it.id, { message_id: messageId });
  });

export const editMessage = (messageId: string, input: Content) =>
  act(async (it) => {
    await changes;
    await api.edit(it.id, input, { message_id: messageId, if_busy: it.isRunning.value ? "interrupt" : "reject" });
  });

export const showBranch = (messageId: string) =>
  act(async (it) => {
    await api.changeSession(it.id, { head_id: messageId });
    await it.load();
  });

export const forkAt = (messageId: string) =>
  act(async (it) => {
    const session = await api.fork(it.id, messageId);
    navigate(`/s/${session.id}`);
    toast(t().forked);
  });

/** Choose the model of the session that is shown, or of the next one. */
export async function chooseModel(model: string): Promise<void> {
  rememberModel(model);
  if (current.value) await act((it) => change(it, { model }));
  else setupForNew.value = { ...setupForNew.value, model };
}

/** Change the settings of the session that is shown, or of the next one. */
export async function changeSetup(setup: Pick<Session, "system" | "params">): Promise<void> {
  if (current.value) await change(current.value, setup);
  else setupForNew.value = { ...setupForNew.value, ...setup };
}

async function change(transcript: Transcript, what: Partial<Setup>): Promise<void> {
  const answer = changes.then(() => api.changeSession(transcript.id, what));
  changes = answer.catch(() => {});
  const session = await answer;
  transcript.session.value = session;
  noteSession(session);
}
