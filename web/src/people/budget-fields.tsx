/** The limits of a person, a group or a key, folded away in its form. A field that is blank sets none. */

import { models } from "../state/models";
import { currency, number } from "../words/count";
import { a } from "../words/people";
import type { Budget } from "./calls";

const NAMES = [
  "tokens_per_day",
  "tokens_per_month",
  "cost_per_day",
  "cost_per_month",
  "runs_at_once",
  "requests_per_minute",
  "bytes_stored",
] as const satisfies (keyof Budget)[];

interface BudgetFieldsProps {
  title: string;
  /** Stands before the names of the fields. */
  prefix: string;
  budget: Budget | undefined;
}

export function BudgetFields({ title, ...fields }: BudgetFieldsProps) {
  return (
    <details class="fold">
      <summary>{title}</summary>
      <LimitFields {...fields} />
    </details>
  );
}

export function LimitFields({ prefix, budget }: Omit<BudgetFieldsProps, "title">) {
  const words = a().limits;
  return (
    <div class="fields">
      {NAMES.map((name) => (
        <label key={name}>
          {name.startsWith("cost") ? `${words[name]} (${models.value.currency})` : words[name]}
          <input
            type="number"
            name={prefix + name}
            min="0"
            step={name.startsWith("cost") ? "any" : "1"}
            placeholder={a().noLimit}
            defaultValue={budget?.[name] === undefined ? "" : String(budget[name])}
          />
        </label>
      ))}
    </div>
  );
}

/** The budget that a form describes. */
export function budgetIn(given: FormData, prefix: string): Budget {
  const set = NAMES.filter((name) => given.get(prefix + name));
  return Object.fromEntries(set.map((name) => [name, Number(given.get(prefix + name))]));
}

/** The limits of a budget, each in words. */
export function limitsIn(budget: Budget): string[] {
  const words = a().limits;
  return NAMES.flatMap((name) => {
    const most = budget[name];
    if (most === undefined) return [];
    return `${words[name]}: ${name.startsWith("cost") ? currency(most, models.value.currency, 2) : number(most)}`;
  });
}
