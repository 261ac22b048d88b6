/** The session that this tab shows, and the one that is about to be made. */
import { computed, effect, signal, untracked } from "@preact/signals";
import { ApiError, api, type IfBusy, isAway, key, reachable, Unreachable } from "../api";
import type { Preset } from "../presets/calls";
import { navigate, place, TEMPORARY } from "../router";
import type { Content, Session } from "../types";
import { lazily } from "../ui/lazily";
import { t } from "../words";
import type { Change, Conversation } from "./conversation";
import { moveDraft } from "./drafts";
import { effortsOf, modelForNew, models, rememberModel } from "./models";
import { chooseForNew, choosePresetForNew, loadPresets, presetsKnown, resetForNew, setupForNew } from "./presets";
import { noteSession } from "./sessions";
import { complain, toast } from "./toasts";
import { Transcript } from "./transcript";

export const current = signal<Conversation | null>(null);
/** The message for which a session is being made. */
export const beginning = signal<Content | null>(null);
/** The model of the session that is shown, or of the next one; null if it is none of the list. */
export const modelToAsk = computed(() => {
  const session = current.value?.session.value;
  const id = session ? (session.model ?? models.value.default) : (setupForNew.value.model ?? modelForNew.value);
  return models.value.models.find((model) => model.id === id) ?? null;
});

/** Show the session of the page's address from now on. */
export function followPlace(): void {
  effect(() => {
    const { view, id } = place.value;
    untracked(() => {
      if (view === "chat") show(id);
      else if (current.value?.isTemporary) show(null); // who leaves a temporary chat ends it
    });
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
  current.value = id && id !== TEMPORARY ? new Transcript(id) : null;
  if (id === TEMPORARY) showTemporary().catch(complain);
}

async function showTemporary(): Promise<void> {
  const { TemporaryChat } = await lazily(() => import("./temporary"));
  if (place.value.id === TEMPORARY && !current.value) current.value = new TemporaryChat();
}

/** Begin a temporary chat with what was typed for a new one, or leave it for a new one. */
export function toggleTemporary(): void {
  if (place.value.id === TEMPORARY) return navigate("/");
  const isNew = !current.value;
  navigate(TEMPORARY);
  if (isNew) moveDraft(null, TEMPORARY);
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
    if (!current.value) beginning.value = input;
    const transcript = current.value ?? (await begin());
    place = transcript.id;
    await transcript.ask(input, ifBusy);
    return { isTaken: true, place };
  } catch (error) {
    if (error instanceof Unreachable) toast(t().notSent, { kind: "bad" });
    else complain(error);
    return { isTaken: false, place };
  } finally {
    beginning.value = null;
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

async function begin(): Promise<Conversation> {
  if (place.value.id === TEMPORARY) throw new Error("a temporary chat has no session");
  if (isAway.value) await reachable(500);
  await presetsKnown();
  const { presetId, preset: _, model, ...setup } = setupForNew.value;
  const body = { ...setup, model: model ?? modelForNew.value, preset: presetId };
  const session = await api.createSession(body).catch((error) => {
    if (presetId) loadPresets(); // it may have been deleted
    throw error;
  });
  noteSession({ ...session, active_run: null, needs_approval: false });
  navigate(`/s/${session.id}`);
  resetForNew();
  if (!current.value) throw new Error("the new session is not shown");
  return current.value;
}

/** Do something with the session that is shown; a view that has become stale is loaded again. */
export async function act(what: (transcript: Conversation) => Promise<unknown>): Promise<void> {
  const transcript = current.value;
  if (!transcript) return;
  try {
    await what(transcript);
  } catch (error) {
    complain(error);
    if (error instanceof ApiError && (error.status === 409 || error.status === 404)) transcript.load();
  }
}

export const stopCurrent = () => act((it) => it.stop());
export const regenerate = (messageId: string, model?: string) => act((it) => it.regenerate(messageId, model));
export const continueAnswer = (messageId: string) => act((it) => it.continue(messageId));
export const showBranch = (messageId: string) => act((it) => it.showBranch(messageId));

export const forkAt = (messageId: string) =>
  act(async (it) => {
    const session = await api.fork(it.id, messageId);
    navigate(`/s/${session.id}`);
    toast(t().forked);
  });

/** Choose the model of the session that is shown, or of the next one. */
export async function chooseModel(model: string): Promise<void> {
  rememberModel(model);
  await change(({ reasoning_effort: effort, ...others }) => {
    const keeps = typeof effort !== "string" || effortsOf(model).includes(effort);
    return keeps ? { model } : { model, params: others }; // other models refuse what they do not know
  });
}

/** Choose how much the model of the session that is shown reasons, or of the next one; not at all for "". */
export const chooseEffort = (effort: string): Promise<void> =>
  change(({ reasoning_effort: _, ...others }) => ({
    params: effort ? { ...others, reasoning_effort: effort } : others,
  }));

async function change(what: Change): Promise<void> {
  if (current.value) await act((it) => it.change(what));
  else chooseForNew(what(setupForNew.value.params));
}

/** Change the settings of the session that is shown, or of the next one. */
export async function changeSetup(setup: Pick<Session, "system" | "params" | "on_break">): Promise<void> {
  if (current.value) await current.value.change(() => setup);
  else chooseForNew(setup);
}

/** Set the session that is shown up with a preset, or the next one; with none for null. */
export async function choosePreset(preset: Preset | null): Promise<void> {
  const shown = current.value;
  if (!shown || shown.isTemporary) choosePresetForNew(preset);
  else
    await act((it) => it.change(() => (preset ? { preset: preset.id } : { system: null, params: {}, on_break: null })));
}
