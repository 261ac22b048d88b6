/** Sets a password with the token of a link. The token is taken out of the address at once, so that no history keeps it. */
import { useEffect, useState } from "preact/hooks";
import { useAttempt } from "../ui/attempt";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { calls } from "./calls";
import { Entrance } from "./entrance";
import { isGood, NewPassword, NOTHING_TYPED } from "./new-password";
import { enter } from "./passing";

export function Reset() {
  const [token] = useState(() => location.hash.slice(1));
  useEffect(() => history.replaceState(null, "", location.pathname), []);
  const words = t().people;
  return (
    <Entrance title={words.setPassword}>
      {token ? (
        <Form token={token} />
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

function Form({ token }: { token: string }) {
  const trying = useAttempt();
  const { isBusy, attempt } = trying;
  const [typed, setTyped] = useState(NOTHING_TYPED);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    attempt(async () => {
      await calls.resetPassword(token, typed.password);
      enter();
    });
  };
  return (
    <form onSubmit={submit}>
      <p class="note">{t().people.resetNote}</p>
      <NewPassword typed={typed} onChange={setTyped} isFirst />
      <Problem of={trying} />
      <button type="submit" class="primary wide" disabled={isBusy || !isGood(typed)}>
        {t().people.setPasswordAndSignIn}
      </button>
    </form>
  );
}
