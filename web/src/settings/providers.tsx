/** Providers and their keys. What a flag, the environment or the settings file sets is shown, and not changed. */
import { KeyRound, Pencil, PlugZap, Plus, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { loadModels, models } from "../state/models";
import { complain, toast } from "../state/toasts";
import type { ProviderState } from "../types";
import { Confirm } from "../ui/confirm";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icon";
import { objectFrom, objectText } from "../ui/json";
import { t } from "../words";
import {
  asChange,
  type Provider,
  type ProviderChange,
  replaceProvider,
  type ServerSettings,
  tellSource,
  testProvider,
} from "./state";

export function Providers({ settings, isAdding }: { settings: ServerSettings; isAdding: boolean }) {
  const [edited, setEdited] = useState<Provider | "new" | null>(isAdding && settings.editable ? "new" : null);
  const [removed, setRemoved] = useState<Provider | null>(null);
  const [tested, setTested] = useState("");
  const test = async (provider: Provider) => {
    setTested(provider.name);
    await testProvider(asChange(provider)).then(tell, complain);
    setTested("");
    await loadModels();
  };
  const remove = async ({ name }: Provider) => {
    await replaceProvider(name, null);
    toast(t().providerRemoved(name));
  };
  return (
    <section aria-labelledby="providers">
      <h2 id="providers">{t().providers}</h2>
      <ul class="cards">
        {settings.providers.map((provider) => (
          <li key={provider.name} data-provider={provider.name}>
            <div>
              <strong>{provider.name}</strong>
              <Standing name={provider.name} />
              <p class="note">{described(provider)}</p>
              {stateOf(provider.name)?.why && <p class="problem">{stateOf(provider.name)?.why}</p>}
            </div>
            <span class="ends">
              {KEYED.has(provider.dialect) && (
                <span class={`badge ${provider.key_set ? "fine" : ""}`}>
                  <Icon node={KeyRound} size={12} /> {provider.key_set ? t().keySet : t().noKey}
                </span>
              )}
              <span class="badge">{tellSource(provider.source)}</span>
              {provider.editable && (
                <>
                  <button
                    type="button"
                    class="quiet icon-button"
                    aria-label={t().testProvider(provider.name)}
                    title={t().testConnection}
                    disabled={tested === provider.name}
                    onClick={() => test(provider)}
                  >
                    <Icon node={PlugZap} size={16} />
                  </button>
                  <button
                    type="button"
                    class="quiet icon-button"
                    aria-label={t().editProvider(provider.name)}
                    title={t().edit}
                    onClick={() => setEdited(provider)}
                  >
                    <Icon node={Pencil} size={16} />
                  </button>
                  <button
                    type="button"
                    class="quiet icon-button"
                    aria-label={t().removeProvider(provider.name)}
                    title={t().remove}
                    onClick={() => setRemoved(provider)}
                  >
                    <Icon node={Trash2} size={16} />
                  </button>
                </>
              )}
            </span>
          </li>
        ))}
      </ul>
      {settings.editable && (
        <button type="button" onClick={() => setEdited("new")}>
          <Icon node={Plus} size={16} /> {t().addProvider}
        </button>
      )}
      {edited && <ProviderDialog provider={edited === "new" ? null : edited} onClose={() => setEdited(null)} />}
      {removed && (
        <Confirm
          title={t().removeProvider(removed.name)}
          action={t().remove}
          onConfirm={() => remove(removed)}
          onClose={() => setRemoved(null)}
        >
          <p>{t().removeProviderWhy}</p>
        </Confirm>
      )}
    </section>
  );
}

/** The dialects of upstreams that may want a key. */
const KEYED = new Set(["openai", "anthropic"]);

const stateOf = (name: string) => models.value.providers.find((each) => each.name === name);

/** Whether its upstream could be used when it was last asked, and lists a model. */
function Standing({ name }: { name: string }) {
  const known = stateOf(name);
  if (!known) return null;
  if (known.ok) return known.models.length ? null : <span class="badge warning">{t().noModels}</span>;
  return <span class="badge warning">{known.pending ? t().providerPending : t().providerFails}</span>;
}

/** Say how many models a provider has, or why it cannot be used. */
function tell(state: ProviderState | undefined): void {
  if (!state || state.pending) return;
  if (state.ok) toast(told(state));
  else toast(told(state), { kind: "bad" });
}

/** What a test has found, in a sentence. The reason is the server's, in the provider's own words. */
function told({ name, ok, why, models: listed }: ProviderState): string {
  if (!ok) return why ?? t().notConnected(name);
  return listed.length ? t().connected(listed.length) : t().connectedWithoutModels;
}

function described({ name, dialect, profile, base_url, models: listed, max_runs }: Provider): string {
  const found = listed ?? models.value.providers.find((each) => each.name === name)?.models;
  const parts = [
    profile ?? dialect,
    base_url,
    found?.length && t().modelsListed(found.length),
    max_runs > 0 && t().maxConcurrent(max_runs),
  ];
  return parts.filter(Boolean).join(" · ");
}

/** A label (the same in every language; the first has none), a dialect, a profile. */
type Kind = [string | null, string, string | null];
const ANY_SERVER: Kind = [null, "openai", null];
const AZURE: Kind = ["Azure OpenAI", "openai", "azure"];
const KINDS: Kind[] = [
  ANY_SERVER,
  ["OpenAI", "openai", "openai"],
  ["OpenAI Responses", "openai-responses", null],
  AZURE,
  ["Anthropic", "anthropic", null],
  ["Google Gemini", "gemini", null],
  ["AWS Bedrock", "bedrock", null],
  ["OpenRouter", "openai", "openrouter"],
  ["Groq", "openai", "groq"],
  ["DeepSeek", "openai", "deepseek"],
  ["Ollama", "openai", "ollama"],
  ["Ollama /api", "ollama", null],
  ["llama-server", "openai", "llamacpp"],
  ["LM Studio", "openai", "lmstudio"],
  ["vLLM", "openai", "vllm"],
];

/** The name of a provider of a kind, if nobody types another: "groq", "azure-openai". */
const nameOf = ([label]: Kind): string => (label ?? "").toLowerCase().replace(/[^a-z0-9]+/g, "-");

function ProviderDialog({ provider, onClose }: { provider: Provider | null; onClose: () => void }) {
  const [problem, setProblem] = useState("");
  const [isSaving, setSaving] = useState(false);
  const known = KINDS.find(([, dialect, profile]) => dialect === provider?.dialect && profile === provider.profile);
  const [kind, setKind] = useState(known ?? ANY_SERVER);
  const [name, setName] = useState(provider?.name);
  const hasAddress = kind !== ANY_SERVER && kind !== AZURE;
  const [found, setFound] = useState("");
  const attempt = async (what: () => Promise<void>) => {
    setSaving(true);
    setProblem("");
    setFound("");
    try {
      await what();
    } catch (error) {
      setProblem((error as Error).message);
    } finally {
      setSaving(false);
    }
  };
  const save = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    attempt(async () => {
      const wanted = fromForm(form, provider);
      await replaceProvider(provider?.name ?? null, wanted);
      onClose();
      await loadModels();
      tell(stateOf(wanted.name));
    });
  };
  const test = (form: HTMLFormElement | null) => {
    if (!form?.reportValidity()) return;
    attempt(async () => {
      const wanted = fromForm(form, provider);
      const state = await testProvider(wanted);
      if (state.ok) setFound(told(state));
      else setProblem(told(state));
    });
  };
  return (
    <Dialog title={provider ? t().editProvider(provider.name) : t().addProvider} onClose={onClose}>
      <form onSubmit={save} autocomplete="off">
        <div class="fields">
          <label>
            {t().type}
            <select
              name="kind"
              value={KINDS.indexOf(kind)}
              onChange={(event) => setKind(KINDS[Number(event.currentTarget.value)] ?? ANY_SERVER)}
            >
              {KINDS.map(([label], index) => (
                <option key={index} value={index} selected={KINDS[index] === kind}>
                  {label ?? t().openAiCompatible}
                </option>
              ))}
            </select>
          </label>
          <label>
            {t().name}
            <input
              name="name"
              type="text"
              required
              value={name ?? nameOf(kind)}
              onInput={(event) => setName(event.currentTarget.value)}
              placeholder={t().nameExample}
            />
          </label>
        </div>
        <label>
          {t().baseUrl}
          <input
            name="base_url"
            type="url"
            defaultValue={provider?.base_url ?? ""}
            onBlur={({ currentTarget: typed }) => {
              // To a browser localhost:1234 is an address of the scheme `localhost`.
              if (/^[\w.-]+:\d/.test(typed.value)) typed.value = `http://${typed.value}`;
            }}
            required={!hasAddress}
            placeholder={hasAddress ? t().baseUrlDefault : "https://example.org/v1"}
          />
        </label>
        <label>
          {t().apiKey}
          <input
            name="key"
            type="password"
            autocomplete="new-password"
            spellcheck={false}
            placeholder={provider?.key_set ? t().keyKept : t().keyStored}
          />
        </label>
        {provider?.key_set && (
          <label class="check">
            <input type="checkbox" name="no_key" /> {t().removeKey}
          </label>
        )}
        <details class="fold" open={isAdvanced(provider)}>
          <summary>{t().moreOptions}</summary>
          <div class="fields">
            <label>
              {t().modelsBlank}
              <input
                name="models"
                type="text"
                defaultValue={provider?.models?.join(", ")}
                placeholder={t().modelsExample}
              />
            </label>
            <label>
              {t().maxConcurrentField}
              <input name="max_runs" type="number" min="0" defaultValue={String(provider?.max_runs ?? 0)} />
            </label>
          </div>
          <label>
            {t().providerOptions}
            <textarea
              class="mono"
              name="options"
              dir="ltr"
              rows={2}
              placeholder='{"keep_alive": "30m", "think": true}'
              spellcheck={false}
              defaultValue={objectText(provider?.options ?? {})}
            />
          </label>
        </details>
        <p class="problem" role="alert">
          {problem}
        </p>
        <p class="found" role="status">
          {found}
        </p>
        <footer>
          <button type="button" disabled={isSaving} onClick={(event) => test(event.currentTarget.form)}>
            {t().testConnection}
          </button>
          <button type="submit" class="primary" disabled={isSaving}>
            {t().save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Whether a provider has more than an address and a key. */
function isAdvanced(provider: Provider | null): boolean {
  return !!provider && (!!provider.models || provider.max_runs > 0 || Object.keys(provider.options).length > 0);
}

/** The provider that the form describes. Without a new key the present one stays, unless it is to be removed. */
function fromForm(form: HTMLFormElement, provider: Provider | null): ProviderChange {
  const given = new FormData(form);
  const text = (name: string) => String(given.get(name) ?? "").trim();
  const [, dialect, profile] = KINDS[Number(text("kind"))] ?? ANY_SERVER;
  const key = text("key");
  return {
    name: text("name"),
    dialect,
    profile,
    base_url: text("base_url"),
    models: text("models") ? text("models").split(/[\s,]+/) : null,
    max_runs: Number(text("max_runs") || 0),
    options: objectFrom(text("options"), t().providerOptions),
    ...(key ? { api_key: key } : given.get("no_key") || !provider ? { api_key: null } : {}),
  };
}
