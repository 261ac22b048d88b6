/** Sets a password with the token of a link. The token is taken out of the address at once, so that no history keeps it. */

import { useEffect, useState } from "preact/hooks";
import { useAttempt } from "../ui/attempt";
import { Shown, useLoaded } from "../ui/loaded";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { a } from "../words/people";
import { calls } from "./calls";
import { asksForCode, CodeField } from "./code-field";
import { Entrance } from "./entrance";
import { isGood, NewPassword, NOTHING_TYPED } from "./new-password";
import { enter } from "./passing";

export function Reset() {
  const [token] = useState(() => location.hash.slice(1));
  useEffect(() => history.replaceState(null, "", location.pathname), []);
  const words = a();
  return (
    <Entrance title={words.setPassword}>
      {token ? (
        <Link token={token} />
      ) : (
        <>
          <p>{words.noToken}</p>
          <a class="button wide" href="/sign-in" target="_self">
            {t().signIn}
          </a>
        </>
      )}
    </Entrance>
  );
}

/** The person learns the name to sign in with, and where; a link that is not valid is told before anything is typed. */
function Link({ token }: { token: string }) {
  const person = useLoaded(() => calls.personOfLink(token));
  return <Shown of={person}>{(owner) => <Form token={token} name={owner.name} isNew={owner.new} />}</Shown>;
}

/** A new account has no sign-ins and no keys that could end. */
function Form({ token, name, isNew }: { token: string; name: string; isNew: boolean }) {
  const trying = useAttempt();
  const { isBusy, attempt } = trying;
  const [typed, setTyped] = useState(NOTHING_TYPED);
  const [isCodeAsked, setCodeAsked] = useState(false);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    attempt(async () => {
      try {
        const code = String(given.get("code") ?? "");
        await calls.resetPassword({ token, password: typed.password, code, keep_keys: given.has("keep_keys") });
        await enter();
      } catch (error) {
        if (!asksForCode(error)) throw error;
        setCodeAsked(true);
      }
    });
  };
  return (
    <form onSubmit={submit}>
      <p>{(isNew ? a().newAccountOn : a().accountOn)(name, location.host)}</p>
      <label>
        {a().userName}
        <input type="text" name="username" autocomplete="username" readOnly value={name} dir="auto" />
      </label>
      <NewPassword typed={typed} onChange={setTyped} others={[name]} isFirst />
      {!isNew && (
        <>
          <p class="note">{a().resetNote}</p>
          <label class="check">
            <input type="checkbox" name="keep_keys" /> {a().keepKeys}
          </label>
        </>
      )}
      {isCodeAsked && <CodeField />}
      <Problem of={trying} />
      <button type="submit" class="primary wide" disabled={isBusy || !isGood(typed, [name])}>
        {a().setPasswordAndSignIn}
      </button>
    </form>
  );
}
