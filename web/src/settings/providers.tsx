/** Providers and their keys. What a flag, the environment or the settings file sets is shown, and not changed. */
import { KeyRound, Pencil, PlugZap, Plus, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { loadModels, models } from "../state/models";
import { complain, toast } from "../state/toasts";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icon";
import { objectFrom, objectText } from "../ui/json";
import { t } from "../words";
import {
  type Provider,
  type ProviderChange,
  replaceProvider,
  type ServerSettings,
  tellSource,
  testProvider,
} from "./state";

export function Providers({ settings, isAdding }: { settings: ServerSettings; isAdding: boolean }) {
  const [edited, setEdited] = useState<Provider | "new" | null>(isAdding && settings.editable ? "new" : null);
  const [tested, setTested] = useState("");
  const test = async ({ name }: Provider) => {
    setTested(name);
    await loadModels();
    setTested("");
    tellConnection(name);
  };
  const remove = async ({ name }: Provider) => {
    try {
      await replaceProvider(name, null);
      toast(t().providerRemoved(name));
    } catch (error) {
      complain(error);
    }
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
                    onClick={() => remove(provider)}
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
    </section>
  );
}

/** The dialects of upstreams that may want a key. */
const KEYED = new Set(["openai", "anthropic"]);

/** Whether its upstream answered when it was last asked. */
function Standing({ name }: { name: string }) {
  const known = models.value.providers.find((each) => each.name === name);
  if (!known || known.ok) return null;
  return <span class="badge warning">{t().providerUnreachable}</span>;
}

/** Say how many models a provider has, or that it cannot be reached. */
function tellConnection(name: string): void {
  const known = models.value.providers.find((each) => each.name === name);
  if (known?.ok) toast(t().connected(known.models.length));
  else toast(t().notConnected(name), { kind: "bad" });
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

/** Names are the same in every language; the first has none. */
type Kind = [string | null, string, string | null];
const ANY_SERVER: Kind = [null, "openai", null];
const KINDS: Kind[] = [
  ANY_SERVER,
  ["OpenAI", "openai", "openai"],
  ["OpenAI Responses", "openai-responses", null],
  ["Azure OpenAI", "openai", "azure"],
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

function ProviderDialog({ provider, onClose }: { provider: Provider | null; onClose: () => void }) {
  const [problem, setProblem] = useState("");
  const [isSaving, setSaving] = useState(false);
  const kind = KINDS.findIndex(([, dialect, profile]) => dialect === provider?.dialect && profile === provider.profile);
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
      form.closest("dialog")?.close();
      await loadModels();
      tellConnection(wanted.name);
    });
  };
  const test = (form: HTMLFormElement | null) => {
    if (!form?.reportValidity()) return;
    attempt(async () => {
      const wanted = fromForm(form, provider);
      const { ok, models: listed } = await testProvider(wanted);
      if (ok) setFound(t().connected(listed.length));
      else setProblem(t().notConnected(wanted.name));
    });
  };
  return (
    <Dialog title={provider ? t().editProvider(provider.name) : t().addProvider} onClose={onClose}>
      <form onSubmit={save} autocomplete="off">
        <div class="fields">
          <label>
            {t().type}
            <select name="kind" defaultValue={Math.max(0, kind)}>
              {KINDS.map(([label], index) => (
                <option key={index} value={index} selected={index === Math.max(0, kind)}>
                  {label ?? t().openAiCompatible}
                </option>
              ))}
            </select>
          </label>
          <label>
            {t().name}
            <input name="name" type="text" required defaultValue={provider?.name} placeholder={t().nameExample} />
          </label>
        </div>
        <label>
          {t().baseUrl}
          <input
            name="base_url"
            type="url"
            defaultValue={provider?.base_url ?? ""}
            placeholder={t().baseUrlHint("https://example.org/v1")}
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
