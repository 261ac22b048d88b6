/** Providers and their keys. What a flag, the environment or the settings file sets is shown, and not changed. */
import { KeyRound, Pencil, Plus, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { models } from "../state/models";
import { complain, toast } from "../state/toasts";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { type Provider, replaceProvider, type ServerSettings, tellSource } from "./state";

export function Providers({ settings }: { settings: ServerSettings }) {
  const [edited, setEdited] = useState<Provider | "new" | null>(null);
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
                    aria-label={t().changeProvider(provider.name)}
                    title={t().change}
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
  return <span class="badge warning">{t().noAnswerLast}</span>;
}

function described({ dialect, profile, base_url, models: listed, max_runs }: Provider): string {
  const parts = [
    profile ?? dialect,
    base_url,
    listed && t().modelsListed(listed.length),
    max_runs > 0 && t().atMostAtOnce(max_runs),
  ];
  return parts.filter(Boolean).join(" · ");
}

/** Names are the same in every language; the first has none. */
const KINDS: [string | null, string, string | null][] = [
  [null, "openai", null],
  ["OpenAI", "openai", "openai"],
  ["Anthropic", "anthropic", null],
  ["OpenRouter", "openai", "openrouter"],
  ["Groq", "openai", "groq"],
  ["DeepSeek", "openai", "deepseek"],
  ["Ollama", "openai", "ollama"],
  ["llama-server", "openai", "llamacpp"],
  ["LM Studio", "openai", "lmstudio"],
  ["vLLM", "openai", "vllm"],
];

function ProviderDialog({ provider, onClose }: { provider: Provider | null; onClose: () => void }) {
  const [problem, setProblem] = useState("");
  const [isSaving, setSaving] = useState(false);
  const kind = KINDS.findIndex(([, dialect, profile]) => dialect === provider?.dialect && profile === provider.profile);
  const save = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const given = new FormData(form);
    const told = (name: string) => String(given.get(name) ?? "").trim();
    const [, dialect, profile] = KINDS[Number(told("kind"))]!;
    const key = told("key");
    setSaving(true);
    try {
      await replaceProvider(provider?.name ?? null, {
        name: told("name"),
        dialect,
        profile,
        base_url: told("base_url"),
        models: told("models") ? told("models").split(/[\s,]+/) : null,
        max_runs: Number(told("max_runs") || 0),
        ...(key ? { api_key: key } : given.get("no_key") || !provider ? { api_key: null } : {}),
      });
      form.closest("dialog")!.close();
    } catch (error) {
      setProblem((error as Error).message);
    } finally {
      setSaving(false);
    }
  };
  return (
    <Dialog title={provider ? t().changeProvider(provider.name) : t().addProvider} onClose={onClose}>
      <form onSubmit={save} autocomplete="off">
        <div class="fields">
          <label>
            {t().kind}
            <select name="kind" defaultValue={Math.max(0, kind)}>
              {KINDS.map(([label], index) => (
                <option key={index} value={index} selected={index === Math.max(0, kind)}>
                  {label ?? t().anyServer}
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
          {t().address}
          <input
            name="base_url"
            type="url"
            defaultValue={provider?.base_url ?? ""}
            placeholder={t().addressHint("https://example.org/v1")}
          />
        </label>
        <label>
          {t().key}
          <input
            name="key"
            type="password"
            autocomplete="new-password"
            spellcheck={false}
            placeholder={provider?.key_set ? t().keyKept : t().keyWritten}
          />
        </label>
        {provider?.key_set && (
          <label class="check">
            <input type="checkbox" name="no_key" /> {t().forgetKey}
          </label>
        )}
        <div class="fields">
          <label>
            {t().modelsAsked}
            <input
              name="models"
              type="text"
              defaultValue={provider?.models?.join(", ")}
              placeholder={t().modelsExample}
            />
          </label>
          <label>
            {t().atOnce}
            <input name="max_runs" type="number" min="0" defaultValue={String(provider?.max_runs ?? 0)} />
          </label>
        </div>
        <p class="problem" role="alert">
          {problem}
        </p>
        <footer>
          <button type="submit" class="primary" disabled={isSaving}>
            {t().save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
