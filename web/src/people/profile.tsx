/** A person's name, e-mail address and password. */

import { useState } from "preact/hooks";
import { loadCaller } from "../state/caller";
import { toast } from "../state/toasts";
import { useAttempt } from "../ui/attempt";
import { useLoaded } from "../ui/loaded";
import { PasswordField } from "../ui/password";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { a } from "../words/people";
import { type Account, calls } from "./calls";
import { isGood, NewPassword, NOTHING_TYPED } from "./new-password";

export function Profile({ account }: { account: Account }) {
  const trying = useAttempt();
  const { isBusy, attempt } = trying;
  const words = a();
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    const [name, email] = [String(given.get("name")).trim(), String(given.get("email")).trim()];
    if (!(await attempt(() => calls.changeAccount({ name, email })))) return;
    await loadCaller();
    toast(words.profileSaved);
  };
  return (
    <section aria-labelledby="profile">
      <h2 id="profile">
        {words.profile} <span class="badge">{words.roles[account.role]}</span>
      </h2>
      <form class="plain-form" onSubmit={submit}>
        <div class="fields">
          <label>
            {t().name}
            <input
              type="text"
              name="name"
              required
              maxLength={64}
              dir="auto"
              autocomplete="username"
              defaultValue={account.name}
            />
          </label>
          <label>
            {words.email}
            <input
              type="email"
              name="email"
              maxLength={256}
              dir="ltr"
              autocomplete="email"
              defaultValue={account.email}
            />
          </label>
        </div>
        <Problem of={trying} />
        <button type="submit" disabled={isBusy}>
          {t().save}
        </button>
      </form>
    </section>
  );
}

interface PasswordProps {
  account: Account;
  /** Changes when the keys may have changed elsewhere on the page. */
  asked: number;
  onChanged: () => void;
}

/** Changing it ends all other sign-ins, and the keys that are chosen. */
export function Password({ account, asked, onChanged }: PasswordProps) {
  const trying = useAttempt();
  const { isBusy, attempt } = trying;
  const [current, setCurrent] = useState("");
  const [typed, setTyped] = useState(NOTHING_TYPED);
  const words = a();
  const others = [account.name, account.email];
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const revoked = new FormData(event.currentTarget as HTMLFormElement).getAll("revoke").map(String);
    const change = async () => {
      await calls.changePassword(current, typed.password);
      for (const id of revoked) await calls.revokeKey("/api/keys", id);
    };
    if (!(await attempt(change))) return;
    setCurrent("");
    setTyped(NOTHING_TYPED);
    onChanged();
    toast(words.passwordChanged);
  };
  return (
    <section aria-labelledby="password">
      <h2 id="password">{words.password}</h2>
      <details class="fold">
        <summary>{account.has_password ? words.changePassword : words.setPassword}</summary>
        <form class="plain-form narrow-form" onSubmit={submit}>
          <input type="text" name="username" autocomplete="username" value={account.name} readonly hidden />
          {account.has_password && (
            <PasswordField label={words.currentPassword} name="current" value={current} onInput={setCurrent} />
          )}
          <NewPassword typed={typed} onChange={setTyped} others={others} />
          <KeysToRevoke asked={asked} />
          <Problem of={trying} />
          <button type="submit" disabled={isBusy || !isGood(typed, others)}>
            {words.changePassword}
          </button>
        </form>
      </details>
    </section>
  );
}

/** The person's keys, which go on working with another password unless they are revoked too. */
function KeysToRevoke({ asked }: { asked: number }) {
  const keys = useLoaded(() => calls.keys("/api/keys"), asked);
  const words = a();
  if (keys.state.is !== "ready" || !keys.state.value.keys.length) return null;
  return (
    <fieldset class="choices">
      <legend>{words.revokeKeysToo}</legend>
      {keys.state.value.keys.map(({ id, name }) => (
        <label key={id} class="check">
          <input type="checkbox" name="revoke" value={id} /> <span dir="auto">{name}</span>
        </label>
      ))}
    </fieldset>
  );
}
