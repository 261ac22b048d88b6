/** The fields of a set-up: the system prompt, and the parameters that go to the model with every run. */
import type { Setup } from "../state/conversation";
import { onBreakOf } from "../state/models";
import type { OnBreak } from "../types";
import { objectFrom, objectText } from "../ui/json";
import { t } from "../words";

const NUMBERS: [string, "temperature" | "topP" | "maxTokens", number, number, number][] = [
  ["temperature", "temperature", 0, 2, 0.1],
  ["top_p", "topP", 0, 1, 0.05],
  ["max_tokens", "maxTokens", 1, 1_000_000, 1],
];
const OWN = new Set(NUMBERS.map(([name]) => name));

/** What is typed in the fields. */
export interface Draft {
  system: string;
  numbers: Record<string, string>;
  more: string;
  /** What is done if a response breaks off; null for what is usual. */
  onBreak: OnBreak | null;
}

type Values = Pick<Setup, "system" | "params" | "on_break">;

export function draftOf({ system, params, on_break: onBreak }: Values): Draft {
  return {
    system: system ?? "",
    numbers: Object.fromEntries(NUMBERS.map(([name]) => [name, String(params[name] ?? "")])),
    more: objectText(Object.fromEntries(Object.entries(params).filter(([name]) => !OWN.has(name)))),
    onBreak,
  };
}

/** What the fields say. Throws what is wrong with one. */
export function valuesOf({ system, numbers, more, onBreak }: Draft): Values {
  const params = { ...objectFrom(more, t().additionalParameters), ...filledIn(numbers) };
  return { system: system.trim() || null, params, on_break: onBreak };
}

interface SetupFieldsProps {
  draft: Draft;
  model: string | null;
  onChange: (draft: Draft) => void;
}

export function SetupFields({ draft, model, onChange }: SetupFieldsProps) {
  const { system, numbers, more, onBreak } = draft;
  const usual = onBreakOf(model);
  return (
    <>
      <label>
        {t().systemPrompt}
        <textarea
          name="system"
          dir="auto"
          rows={5}
          value={system}
          onInput={(event) => onChange({ ...draft, system: event.currentTarget.value })}
        />
      </label>
      <div class="fields">
        {NUMBERS.map(([name, label, min, max, step]) => (
          <label key={name}>
            {t()[label]}
            <input
              type="number"
              placeholder={t().defaultValue}
              {...{ min, max, step }}
              value={numbers[name]}
              onInput={(event) => onChange({ ...draft, numbers: { ...numbers, [name]: event.currentTarget.value } })}
            />
          </label>
        ))}
      </div>
      <label>
        {t().additionalParameters}
        <textarea
          class="mono"
          dir="ltr"
          rows={3}
          placeholder='{"seed": 7}'
          spellcheck={false}
          value={more}
          onInput={(event) => onChange({ ...draft, more: event.currentTarget.value })}
        />
      </label>
      <label class="check">
        <input
          type="checkbox"
          checked={(onBreak ?? usual) === "continue"}
          onChange={({ currentTarget: { checked } }) => {
            const wanted = checked ? "continue" : "settle";
            onChange({ ...draft, onBreak: wanted === usual ? null : wanted });
          }}
        />
        {t().continueItself}
      </label>
    </>
  );
}

function filledIn(numbers: Record<string, string>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(numbers)
      .filter(([, text]) => text !== "")
      .map(([name, text]) => [name, Number(text)]),
  );
}
