/** What a schedule or a trigger asks, and where: the fields that both forms have. */
import { useId } from "preact/hooks";
import { models } from "../state/models";
import { presets } from "../state/presets";
import { sessions, titles } from "../state/sessions";
import { t } from "../words";
import { s } from "../words/schedules";
import type { NewTrigger } from "./calls";

export type Asked = Pick<NewTrigger, "name" | "prompt" | "model" | "kind" | "preset" | "session">;

export const NOTHING_ASKED: Asked = { name: "", prompt: "", model: null, kind: "chat", preset: null, session: null };

/** What was given in the fields; `before` has what they do not show. */
export function askedIn(given: FormData, before: Asked): Asked {
  const text = (name: string) => String(given.get(name) ?? "").trim();
  const session = text("session") || null;
  return {
    name: text("name"),
    prompt: String(given.get("prompt") ?? ""),
    model: text("model") || null,
    kind: before.kind,
    preset: session ? null : text("preset") || null,
    session,
  };
}

interface AskedFieldsProps {
  asked: Asked;
  hint?: string;
}

export function AskedFields({ asked, hint }: AskedFieldsProps) {
  const listed = useId();
  const own = presets.value;
  const isKnown = (list: readonly { id: string }[], id: string) => list.some((each) => each.id === id);
  const { session, preset } = asked;
  return (
    <>
      <label>
        {t().name}
        <input type="text" name="name" dir="auto" required maxLength={64} defaultValue={asked.name} />
      </label>
      <label>
        {s().prompt}
        <textarea name="prompt" dir="auto" required rows={4} maxLength={100_000} defaultValue={asked.prompt} />
      </label>
      {hint && <p class="note">{hint}</p>}
      <div class="fields">
        <label>
          {s().modelBlank}
          <input type="text" name="model" dir="ltr" list={listed} spellcheck={false} defaultValue={asked.model ?? ""} />
          <datalist id={listed}>
            {models.value.models.map((model) => (
              <option key={model.id} value={model.id} />
            ))}
          </datalist>
        </label>
        <label>
          {s().where}
          <select name="session">
            <option value="">{s().newChat}</option>
            {session && !isKnown(sessions.value, session) && (
              <option value={session} selected>
                {titles.value.get(session) ?? session}
              </option>
            )}
            {sessions.value.map(({ id, title }) => (
              <option key={id} value={id} selected={id === session}>
                {title || t().untitled}
              </option>
            ))}
          </select>
        </label>
        {(own.length > 0 || preset) && (
          <label>
            {s().presetForNew}
            <select name="preset">
              <option value="">{t().noPreset}</option>
              {preset && !isKnown(own, preset) && (
                <option value={preset} selected>
                  {preset}
                </option>
              )}
              {own.map(({ id, name }) => (
                <option key={id} value={id} selected={id === preset || name === preset}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
    </>
  );
}
