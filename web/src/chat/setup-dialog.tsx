/** A session's instructions (its system prompt) and the parameters that go to the model with every run. */
import type { TargetedSubmitEvent } from "preact";
import { useMemo, useState } from "preact/hooks";
import { changeSetup, current, setupForNew } from "../state/current";
import { modelForNew, onBreakOf } from "../state/models";
import { Dialog } from "../ui/dialog";
import { objectFrom, objectText } from "../ui/json";
import { t } from "../words";

const NUMBERS: [string, "temperature" | "topP" | "maxTokens", number, number, number][] = [
  ["temperature", "temperature", 0, 2, 0.1],
  ["top_p", "topP", 0, 1, 0.05],
  ["max_tokens", "maxTokens", 1, 1_000_000, 1],
];
const OWN = new Set(NUMBERS.map(([name]) => name));

export default function SetupDialog({ onClose }: { onClose: () => void }) {
  const setup = current.value?.session.value ?? setupForNew.value;
  const [system, setSystem] = useState(setup.system ?? "");
  const [numbers, setNumbers] = useState(() =>
    Object.fromEntries(NUMBERS.map(([name]) => [name, String(setup.params[name] ?? "")])),
  );
  const [more, setMore] = useState(() => written(setup.params));
  const usual = onBreakOf(setup.model ?? modelForNew.value);
  const [onBreak, setOnBreak] = useState(setup.on_break ?? usual);
  const [problem, setProblem] = useState("");
  const [isAsked, setAsked] = useState(false);
  const now = JSON.stringify([system, numbers, more, onBreak]);
  const isChanged = useMemo(() => now, []) !== now;
  const close = () => (isChanged && !isAsked ? setAsked(true) : onClose());
  const save = async (event: TargetedSubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    try {
      const params = { ...objectFrom(more, t().additionalParameters), ...filledIn(numbers) };
      await changeSetup({ system: system.trim() || null, params, on_break: onBreak === usual ? null : onBreak });
      onClose();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <Dialog title={t().chatSettings} onClose={close}>
      <form onSubmit={save}>
        <label>
          {t().systemPrompt}
          <textarea dir="auto" rows={5} value={system} onInput={(event) => setSystem(event.currentTarget.value)} />
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
                onInput={(event) => setNumbers({ ...numbers, [name]: event.currentTarget.value })}
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
            onInput={(event) => setMore(event.currentTarget.value)}
          />
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={onBreak === "continue"}
            onChange={(event) => setOnBreak(event.currentTarget.checked ? "continue" : "settle")}
          />
          {t().continueItself}
        </label>
        <p class="problem" role="alert">
          {problem}
        </p>
        <footer>
          {isAsked && (
            <span class="asked" role="alert">
              {t().discardChanges}
              <button type="button" class="danger" onClick={onClose}>
                {t().discard}
              </button>
            </span>
          )}
          <button type="submit" class="primary">
            {t().save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function written(params: Record<string, unknown>): string {
  return objectText(Object.fromEntries(Object.entries(params).filter(([name]) => !OWN.has(name))));
}

function filledIn(numbers: Record<string, string>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(numbers)
      .filter(([, text]) => text !== "")
      .map(([name, text]) => [name, Number(text)]),
  );
}
