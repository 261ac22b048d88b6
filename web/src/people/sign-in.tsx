/** The form to sign in. A key is another way, for servers and people that use one. */

import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api";
import { AskForKey } from "../key";
import { signInError } from "../router";
import { isPerson } from "../state/caller";
import { useAttempt } from "../ui/attempt";
import { PasswordField } from "../ui/password";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { a } from "../words/people";
import { signInErrorText } from "../words/sign-in-errors";
import { calls, type Ways } from "./calls";
import { asksForCode, CodeField } from "./code-field";
import { Entrance } from "./entrance";
import { enter, enterWithKey, placeToGo } from "./passing";
import { canUsePasskeys, usedPasskey } from "./webauthn";

export function SignIn({ ways }: { ways: Ways }) {
  const [hasKey, setKeyAsked] = useState(false);
  const words = a();
  return (
    <Entrance title={words.signInTo}>
      {signInError !== null && (
        <p class="problem" role="alert">
          {signInErrorText(signInError)}
        </p>
      )}
      {isPerson.value && <p role="status">{words.signInEnded}</p>}
      {ways.oidc && (
        <a
          class="button primary wide"
          target="_self"
          href={`${ways.oidc.start}?${new URLSearchParams({ next: placeToGo() })}`}
        >
          {words.signInWith(ways.oidc.name)}
        </a>
      )}
      {ways.password && <PasswordForm isFirst={!ways.oidc} />}
      {ways.passkey && canUsePasskeys() && <PasskeyButton />}
      <button type="button" class="link" onClick={() => setKeyAsked(true)}>
        {words.useKey}
      </button>
      {hasKey && <AskForKey onClose={() => setKeyAsked(false)} onTaken={enterWithKey} />}
    </Entrance>
  );
}

function PasskeyButton() {
  const trying = useAttempt();
  const signIn = () =>
    trying.attempt(async () => {
      await calls.signInWithPasskey(await usedPasskey(await calls.passkeySignInOptions()));
      await enter();
    });
  return (
    <>
      <button type="button" class="wide" disabled={trying.isBusy} onClick={signIn}>
        {a().signInWithPasskey}
      </button>
      <Problem of={trying} />
    </>
  );
}

function PasswordForm({ isFirst }: { isFirst: boolean }) {
  const trying = useAttempt();
  const { isBusy, attempt } = trying;
  const [isCodeAsked, setCodeAsked] = useState(false);
  const [waitUntil, setWaitUntil] = useState(0);
  const left = useSecondsUntil(waitUntil);
  const words = a();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    attempt(async () => {
      try {
        await calls.signIn({
          name: String(given.get("username")),
          password: String(given.get("password")),
          stay: given.has("stay"),
          code: String(given.get("code") ?? ""),
        });
        await enter();
      } catch (error) {
        if (asksForCode(error)) return setCodeAsked(true);
        if (error instanceof ApiError && error.retryAfter) setWaitUntil(Date.now() + error.retryAfter * 1_000);
        throw error;
      }
    });
  };
  return (
    <form onSubmit={submit}>
      <label>
        {words.nameOrEmail}
        <input
          type="text"
          name="username"
          autocomplete="username"
          autocapitalize="none"
          spellcheck={false}
          required
          maxLength={256}
          autofocus={isFirst}
          dir="auto"
        />
      </label>
      <PasswordField label={words.password} name="password" />
      {isCodeAsked && <CodeField />}
      <label class="check">
        <input type="checkbox" name="stay" /> {words.staySignedIn}
      </label>
      <Problem of={trying} />
      <button type="submit" class="primary wide" disabled={isBusy || left > 0}>
        {left > 0 ? words.tryAgainIn(left) : isBusy ? words.signingIn : t().signIn}
      </button>
    </form>
  );
}

/** Whole seconds until a moment, counted down; 0 when it has passed. */
function useSecondsUntil(moment: number): number {
  const [now, setNow] = useState(0);
  useEffect(() => {
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 250);
    if (moment <= Date.now()) clearInterval(timer);
    return () => clearInterval(timer);
  }, [moment]);
  return Math.max(0, Math.ceil((moment - now) / 1_000));
}
