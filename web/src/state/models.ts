/** The models on offer, and the one that a new session gets. */
import { computed, effect, signal } from "@preact/signals";
import { api, isAway, key } from "../api";
import type { Models, OnBreak } from "../types";

const LAST = "holdfast.model";

export const models = signal<Models>({ models: [], default: null, providers: [], currency: "USD" });
export const modelsState = signal<"loading" | "ready" | "failed">("loading");
const lastChosen = signal(localStorage.getItem(LAST));

/** The model for a new session: the one that was chosen last, as long as its provider is still there. */
export const modelForNew = computed(() => {
  const chosen = lastChosen.value;
  const isOffered = models.value.providers.some(({ name }) => chosen?.startsWith(`${name}/`));
  return chosen && isOffered ? chosen : models.value.default;
});

/** Whether a model is only for trying things out. */
export const isDemo = (id: string | null): boolean =>
  models.value.providers.some(({ name, demo }) => demo && id?.startsWith(`${name}/`));

/** Whether a model runs on a machine of the operator. */
export const isLocal = (id: string): boolean => models.value.models.some((model) => model.id === id && model.local);

/** What is done if a response of a model breaks off, in a chat that does not say it. */
export const onBreakOf = (id: string | null): OnBreak =>
  models.value.models.find((model) => model.id === id)?.on_break ?? "settle";

/** How much a model can be told to reason. */
export const effortsOf = (id: string | null): string[] =>
  models.value.models.find((model) => model.id === id)?.efforts ?? [];

/** Whether a model is an agent with files. */
export const hasFiles = (id: string): boolean => models.value.models.some((model) => model.id === id && model.files);

/** Whether a model writes fixed text, to test a client. */
export const isTest = (id: string): boolean => id.startsWith("scripted/");

export function rememberModel(id: string): void {
  lastChosen.value = id;
  localStorage.setItem(LAST, id);
}

let asked = 0;

export async function loadModels(): Promise<void> {
  const mine = ++asked;
  try {
    const found = await api.models();
    if (mine !== asked) return;
    models.value = found;
    modelsState.value = "ready";
    if (models.value.providers.some(({ pending }) => pending)) setTimeout(loadModels, 1000);
  } catch {
    if (modelsState.value === "loading") modelsState.value = "failed";
  }
}

/** Load the models from now on whenever the key changes or the server is back. */
export function keepModels(): void {
  effect(() => {
    key.value;
    if (!isAway.value) queueMicrotask(loadModels);
  });
}
