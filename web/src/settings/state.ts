/** The server's settings as clauses 17.6 to 17.9 of the protocol give them. A key is written and never read. */
import { signal } from "@preact/signals";
import { call } from "../api";
import { loadModels } from "../state/models";
import type { ProviderState } from "../types";
import { t } from "../words";

export type Source = "flag" | "env" | "file" | "ui" | "default" | "found";

export interface Provider {
  name: string;
  dialect: string;
  profile: string | null;
  base_url: string | null;
  models: string[] | null;
  max_runs: number;
  options: Record<string, unknown>;
  key_set: boolean;
  source: Source;
  editable: boolean;
}

export interface ServerSettings {
  default_model: string | null;
  /** The model that titles chats; null for the beginning of the first message. */
  title_model: string | null;
  fallbacks: Record<string, string>;
  providers: Provider[];
  sources: { default_model: Source; title_model: Source; fallbacks: Source };
  editable: boolean;
}

/** A provider as it is sent. Without `api_key` the key that is there stays; null takes it away. */
export interface ProviderChange {
  name: string;
  dialect: string;
  profile: string | null;
  base_url: string;
  models: string[] | null;
  max_runs: number;
  options: Record<string, unknown>;
  api_key?: string | null;
}

export const settings = signal<ServerSettings | null>(null);
export const problem = signal("");

export async function load(): Promise<void> {
  try {
    settings.value = await call<ServerSettings>("GET", "/api/settings");
    problem.value = "";
  } catch (error) {
    problem.value = (error as Error).message;
  }
}

interface Change {
  default_model?: string | null;
  title_model?: string | null;
  providers?: ProviderChange[];
  fallbacks?: Record<string, string>;
}

export async function change(body: Change): Promise<void> {
  settings.value = await call<ServerSettings>("PUT", "/api/settings", { body });
  loadModels();
}

/** Ask a provider for its models, without saving it. */
export function testProvider(body: ProviderChange): Promise<ProviderState> {
  return call<ProviderState>("POST", "/api/settings/test", { body });
}

/** Put one provider in the place of another (or of none), and send all that were set here: the server takes the whole list. */
export function replaceProvider(name: string | null, by: ProviderChange | null): Promise<void> {
  const set = (settings.value?.providers ?? []).filter(({ source }) => source === "ui").map(asChange);
  const at = set.findIndex((each) => each.name === name);
  const providers = at < 0 ? [...set, ...(by ? [by] : [])] : set.toSpliced(at, 1, ...(by ? [by] : []));
  return change({ providers });
}

export function asChange({ name, dialect, profile, base_url, models, max_runs, options }: Provider): ProviderChange {
  return { name, dialect, profile, base_url: base_url ?? "", models, max_runs, options };
}

export function tellSource(source: Source): string {
  return t().sources[source] ?? source;
}
