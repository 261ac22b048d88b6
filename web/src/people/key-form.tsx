/** What a new key is for: its scopes, models and agents, its limits, and when it ends. */

import { useState } from "preact/hooks";
import { useAttempt } from "../ui/attempt";
import { Dialog } from "../ui/dialog";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { a } from "../words/people";
import { BudgetFields, budgetIn } from "./budget-fields";
import { calls, type KeysPath, type MadeKey, type Scope } from "./calls";
import { patternsIn } from "./patterns";

const DEFAULT_SCOPES: Scope[] = ["chat", "batch"];
const DAYS = [7, 30, 90, 365];
const DEFAULT_DAYS = 90;

interface KeyFormProps {
  path: KeysPath;
  scopes: Scope[];
  onMade: (key: MadeKey) => void;
  onClose: () => void;
}

export function KeyForm({ path, scopes, onMade, onClose }: KeyFormProps) {
  const trying = useAttempt();
  const { isBusy, attempt } = trying;
  const [chosen, setChosen] = useState(DEFAULT_SCOPES);
  const words = a();
  const toggle = (scope: Scope) =>
    setChosen(chosen.includes(scope) ? chosen.filter((each) => each !== scope) : [...chosen, scope]);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    const days = Number(given.get("expires_in_days"));
    attempt(async () => {
      const key = await calls.makeKey(path, {
        name: String(given.get("name")).trim(),
        scopes: scopes.filter((scope) => chosen.includes(scope)),
        models: patternsIn(given.get("models")),
        agents: patternsIn(given.get("agents")),
        expires_in_days: days || null,
        budget: budgetIn(given, ""),
      });
      onMade(key);
    });
  };
  return (
    <Dialog title={path === "/api/keys" ? words.newKey : words.newServiceKey} onClose={onClose}>
      <form onSubmit={submit} autocomplete="off">
        <div class="fields">
          <label>
            {t().name}
            <input type="text" name="name" required maxLength={64} spellcheck={false} dir="auto" />
          </label>
          <label>
            {words.expiry}
            <select name="expires_in_days">
              {DAYS.map((days) => (
                <option key={days} value={days} selected={days === DEFAULT_DAYS}>
                  {words.afterDays(days)}
                </option>
              ))}
              <option value="0">{words.never}</option>
            </select>
          </label>
        </div>
        <fieldset class="choices">
          <legend>{words.scopesTitle}</legend>
          {scopes.map((scope) => (
            <label key={scope}>
              <input type="checkbox" checked={chosen.includes(scope)} onChange={() => toggle(scope)} />
              {words.scopeNotes[scope]}
            </label>
          ))}
        </fieldset>
        <div class="fields">
          <label>
            {words.modelsBlankAll}
            <input type="text" name="models" dir="ltr" spellcheck={false} placeholder={words.modelPatterns} />
          </label>
          <label>
            {words.agentsBlankAll}
            <input type="text" name="agents" dir="ltr" spellcheck={false} placeholder={words.agentPatterns} />
          </label>
        </div>
        <BudgetFields title={words.limitsTitle} prefix="" budget={undefined} />
        <Problem of={trying} />
        <footer>
          <button type="submit" class="primary" disabled={isBusy || !chosen.length}>
            {words.makeKey}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
