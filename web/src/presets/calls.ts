/** The calls of presets and prompts, as docs/protocol/37-presets-and-prompts.md gives them. */
import { call } from "../api";
import type { GroupName, OnBreak } from "../types";

interface Kept {
  id: string;
  name: string;
  /** The group that may use it too, if any; its name is null if the group was deleted. */
  group: string | null;
  group_name: string | null;
  own: boolean;
  /** Whose it is, if it is another person's. */
  by: string | null;
}

export interface Preset extends Kept {
  model: string | null;
  system: string | null;
  params: Record<string, unknown>;
  on_break: OnBreak | null;
}

export interface Prompt extends Kept {
  text: string;
  variables: string[];
}

export type NewPreset = Pick<Preset, "name" | "model" | "system" | "params" | "on_break"> & { group: string };
export type NewPrompt = Pick<Prompt, "name" | "text"> & { group: string };

export interface ImportReport {
  added: number;
  entries: { kind: string; name: string; result: "added" | "known" | "refused"; why: string }[];
}

interface Presets {
  presets: Preset[];
  default: string | null;
  /** The groups that the caller can share with. */
  groups: GroupName[];
}

const one = (kind: "presets" | "prompts", id: string) => `/api/${kind}/${id}`;

export const presetCalls = {
  presets: () => call<Presets>("GET", "/api/presets"),
  addPreset: (body: NewPreset) => call<Preset>("POST", "/api/presets", { body }),
  changePreset: (id: string, body: NewPreset) => call<Preset>("PUT", one("presets", id), { body }),
  deletePreset: (id: string) => call<void>("DELETE", one("presets", id)),
  setDefault: (preset: string | null) => call<unknown>("PUT", "/api/presets/default", { body: { preset } }),
  prompts: () => call<{ prompts: Prompt[] }>("GET", "/api/prompts"),
  addPrompt: (body: NewPrompt) => call<Prompt>("POST", "/api/prompts", { body }),
  changePrompt: (id: string, body: NewPrompt) => call<Prompt>("PUT", one("prompts", id), { body }),
  deletePrompt: (id: string) => call<void>("DELETE", one("prompts", id)),
  import: (body: unknown) => call<ImportReport>("POST", "/api/presets/import", { body }),
};
