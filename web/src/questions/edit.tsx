/** The arguments of a call to be changed before it is allowed: one field for each, or all of them as JSON. */
import { useState } from "preact/hooks";
import { argumentsOf, visible } from "../chat/whole-call";
import { t } from "../words";
import { q } from "../words/questions";

interface EditProps {
  arguments: string;
  isSent: boolean;
  onAllow: (changed: Record<string, unknown>) => void;
  onCancel: () => void;
}

export function EditCall({ arguments: given, isSent, onAllow, onCancel }: EditProps) {
  const [texts, setTexts] = useState(() => textsOf(given));
  const changed = changedBy(given, texts);
  return (
    <form
      class="edit-call"
      onSubmit={(event) => {
        event.preventDefault();
        if (changed) onAllow(changed);
      }}
    >
      {[...texts].map(([name, text]) => (
        <label key={name}>
          {name ? visible(name) : t().arguments}
          <textarea
            dir="ltr"
            rows={Math.min(12, text.split("\n").length + 1)}
            spellcheck={false}
            value={text}
            onInput={(event) => setTexts(new Map(texts).set(name, event.currentTarget.value))}
          />
        </label>
      ))}
      {!changed && <small role="alert">{q().notJson}</small>}
      <footer>
        <button type="button" class="small" onClick={onCancel}>
          {t().cancel}
        </button>
        <button type="submit" class="small primary" disabled={isSent || !changed}>
          {q().allowChanged}
        </button>
      </footer>
    </form>
  );
}

/** A text for each argument; one for all of them, without a name, where they cannot be taken apart. */
function textsOf(given: string): Map<string, string> {
  const parts = argumentsOf(given);
  return new Map(parts?.length ? parts.map(({ name, text }) => [name, text]) : [["", given]]);
}

/** The arguments with what was changed; null if that is no JSON where it has to be. */
function changedBy(given: string, texts: Map<string, string>): Record<string, unknown> | null {
  try {
    if (texts.has("")) return asObject(JSON.parse(texts.get("") ?? ""));
    const before = asObject(JSON.parse(given)) ?? {};
    const parts = [...texts].map(([name, text]) => [name, typeof before[name] === "string" ? text : JSON.parse(text)]);
    return Object.fromEntries(parts);
  } catch {
    return null;
  }
}

function asObject(value: unknown): Record<string, unknown> | null {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : null;
}
