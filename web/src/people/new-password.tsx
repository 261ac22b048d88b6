/** A new password, typed twice, with its rules: each is marked as soon as it is kept. */

import { Check, Circle } from "lucide";
import { useId } from "preact/hooks";
import { Icon } from "../ui/icon";
import { PasswordField } from "../ui/password";
import { a } from "../words/people";
import { rulesOf, SHORTEST } from "./password-rules";

export interface Typed {
  password: string;
  again: string;
}

export const NOTHING_TYPED: Typed = { password: "", again: "" };

interface NewPasswordProps {
  typed: Typed;
  onChange: (typed: Typed) => void;
  /** The name and the e-mail address of the account, which the password must not be. */
  others?: string[];
  isFirst?: boolean;
}

export function NewPassword({ typed, onChange, others = [], isFirst = false }: NewPasswordProps) {
  const id = useId();
  const words = a();
  const told = {
    long: words.ruleLong(SHORTEST),
    varied: words.ruleVaried,
    unlikeName: words.ruleUnlikeName,
    same: words.ruleSame,
  };
  return (
    <>
      <PasswordField
        label={words.newPassword}
        name="password"
        isNew
        value={typed.password}
        onInput={(password) => onChange({ ...typed, password })}
        describedBy={id}
        isFirst={isFirst}
      />
      <PasswordField
        label={words.passwordAgain}
        name="again"
        isNew
        value={typed.again}
        onInput={(again) => onChange({ ...typed, again })}
        describedBy={id}
      />
      <ul class="rules" id={id}>
        {rulesOf(typed.password, typed.again, others).map(({ name, isKept }) => (
          <li key={name} class={isKept ? "is-kept" : undefined}>
            <Icon node={isKept ? Check : Circle} size={14} />
            {told[name]}
            {isKept && <span class="sr-only">{words.ruleKept}</span>}
          </li>
        ))}
      </ul>
    </>
  );
}

/** Whether it can be sent. */
export function isGood({ password, again }: Typed, others: string[] = []): boolean {
  return rulesOf(password, again, others).every(({ isKept }) => isKept);
}
