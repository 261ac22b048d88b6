/** The presets that this person may use, and what a new chat begins with. */
import { batch, computed, effect, signal } from "@preact/signals";
import { isAway, key } from "../api";
import { type Preset, presetCalls } from "../presets/calls";
import { place, TEMPORARY } from "../router";
import type { Setup } from "./conversation";
import { keepDraft, readDraft } from "./drafts";

export const presets = signal<Preset[]>([]);
export const defaultPreset = signal<string | null>(null);
let loading: Promise<void> = Promise.resolve();

const SETUP = "setup";

/** What was chosen for the next new chat, over what its preset says: a draft, as its message is. */
const chosen = signal<NewSetup>(JSON.parse(readDraft(SETUP) || "{}"));

type NewSetup = Partial<Setup> & {
  /** The id of the preset: another person's may have the same name. */
  presetId?: string | null;
};

const NOTHING = {
  model: null,
  system: null,
  params: {},
  on_break: null,
  preset: null,
  presetId: null,
} satisfies NewSetup;

/** What the next new session will have. */
export const setupForNew = computed<Required<NewSetup>>(() => ({
  ...NOTHING,
  ...setupOf(presets.value.find(({ id }) => id === defaultPreset.value)),
  ...chosen.value,
}));

const LEAVING = ["system", "params", "on_break"];

function setupOf(preset: Preset | undefined): NewSetup {
  if (!preset) return {};
  const { id, name, model, system, params, on_break } = preset;
  return { ...(model && { model }), system, params, on_break, preset: name, presetId: id };
}

function choose(setup: NewSetup): void {
  chosen.value = setup;
  if (place.value.id !== TEMPORARY) keepDraft(SETUP, JSON.stringify(setup));
}

/** Change what the next new chat will have. What else sets it up leaves the preset. */
export function chooseForNew(changes: Partial<Setup>): void {
  const left = LEAVING.some((name) => name in changes) ? { preset: null, presetId: null } : {};
  choose({ ...chosen.value, ...left, ...changes });
}

/** Let the next new chat begin with a preset; with none for null. */
export function choosePresetForNew(preset: Preset | null): void {
  choose(preset ? setupOf(preset) : NOTHING);
}

/** Let the next new chat begin as every new chat does. */
export function resetForNew(): void {
  choose({});
}

export function loadPresets(): Promise<void> {
  loading = presetCalls.presets().then(take, () => {}); // the page tells if the server is away
  return loading;
}

function take({ presets: listed, default: id }: Awaited<ReturnType<typeof presetCalls.presets>>): void {
  batch(() => {
    presets.value = listed;
    defaultPreset.value = id;
    const used = chosen.peek().presetId;
    if (used && !listed.some((each) => each.id === used))
      chosen.value = { ...chosen.peek(), preset: null, presetId: null };
  });
}

/** Settles when it is known what new chats begin with, or cannot be known now. */
export const presetsKnown = (): Promise<void> => loading;

/** Load the presets from now on whenever the key changes or the server is back. */
export function keepPresets(): void {
  effect(() => {
    key.value;
    if (!isAway.value) queueMicrotask(loadPresets);
  });
}
