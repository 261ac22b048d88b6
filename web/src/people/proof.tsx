/** Asks for the password or a passkey again, before something that a stolen cookie must not be enough for. */

import { useState } from "preact/hooks";
import { proofWanted } from "../api";
import { useAttempt } from "../ui/attempt";
import { Dialog } from "../ui/dialog";
import { Shown, useLoaded } from "../ui/loaded";
import { PasswordField } from "../ui/password";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { a } from "../words/people";
import { calls } from "./calls";
import { asksForCode, CodeField } from "./code-field";
import { canUsePasskeys, usedPasskey } from "./webauthn";

export default function Proof() {
  const account = useLoaded(calls.account);
  const passkeys = useLoaded(calls.passkeys);
  const words = a();
  return (
    <Dialog title={words.proveTitle} onClose={() => proofWanted.value?.(false)} class="narrow">
      <Shown of={account}>{(own) => (own.has_password ? <Form name={own.name} /> : <Elsewhere />)}</Shown>
      <Shown of={passkeys}>{({ passkeys: own }) => (own.length && canUsePasskeys() ? <ByPasskey /> : null)}</Shown>
    </Dialog>
  );
}

function ByPasskey() {
  const trying = useAttempt();
  const prove = () =>
    trying.attempt(async () => {
      await calls.proveByPasskey(await usedPasskey(await calls.passkeySignInOptions()));
      proofWanted.value?.(true);
    });
  return (
    <>
      <button type="button" class="wide" disabled={trying.isBusy} onClick={prove}>
        {a().provePasskey}
      </button>
      <Problem of={trying} />
    </>
  );
}

function Form({ name }: { name: string }) {
  const trying = useAttempt();
  const [isCodeAsked, setCodeAsked] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    const prove = async () => {
      try {
        await calls.prove(String(given.get("password")), String(given.get("code") ?? ""));
        proofWanted.value?.(true);
      } catch (error) {
        if (!asksForCode(error)) throw error;
        setCodeAsked(true);
      }
    };
    await trying.attempt(prove);
  };
  return (
    <form onSubmit={submit}>
      <p>{a().proveWhy}</p>
      <input type="text" name="username" autocomplete="username" value={name} readonly hidden />
      <PasswordField label={a().currentPassword} name="password" isFirst />
      {isCodeAsked && <CodeField />}
      <Problem of={trying} />
      <footer>
        <button type="button" onClick={() => proofWanted.value?.(false)}>
          {t().cancel}
        </button>
        <button type="submit" class="primary" disabled={trying.isBusy}>
          {a().prove}
        </button>
      </footer>
    </form>
  );
}

/** Who has no password here signs in again, with the identity provider. */
function Elsewhere() {
  return (
    <>
      <p>{a().proveElsewhere}</p>
      <a class="button wide" href="/sign-in" target="_self">
        {t().signIn}
      </a>
    </>
  );
}
