/** A person's passkeys: added, listed and removed. */

import { useState } from "preact/hooks";
import { complain } from "../state/toasts";
import { Confirm } from "../ui/confirm";
import { Shown, useLoaded } from "../ui/loaded";
import { PasswordField } from "../ui/password";
import { t } from "../words";
import { moment } from "../words/count";
import { a } from "../words/people";
import { type Account, calls } from "./calls";
import { canUsePasskeys, madePasskey } from "./webauthn";

export function Passkeys({ account }: { account: Account }) {
  const passkeys = useLoaded(calls.passkeys);
  const [isAdding, setAdding] = useState(false);
  const words = a();
  if (!canUsePasskeys()) return null;
  const add = async (form: HTMLFormElement) => {
    const given = new FormData(form);
    const options = await calls.passkeyOptions(String(given.get("password") ?? ""));
    await calls.addPasskey(String(given.get("name")), await madePasskey(options));
    await passkeys.load();
  };
  const remove = async (id: string) => {
    await calls.removePasskey(id).catch(complain);
    await passkeys.load();
  };
  return (
    <section aria-labelledby="passkeys">
      <h2 id="passkeys">{words.passkeys}</h2>
      <p class="note">{words.passkeysNote}</p>
      <Shown of={passkeys}>
        {({ passkeys: listed }) => (
          <ul class="cards">
            {listed.map((passkey) => (
              <li key={passkey.id}>
                <div>
                  <strong dir="auto">{passkey.name}</strong>
                  <p class="note">
                    {passkey.used_at ? words.lastUsed(moment(passkey.used_at, "short")) : words.neverUsed}
                  </p>
                </div>
                <button
                  type="button"
                  class="small"
                  aria-label={words.removePasskey(passkey.name)}
                  onClick={() => remove(passkey.id)}
                >
                  {t().delete}
                </button>
              </li>
            ))}
          </ul>
        )}
      </Shown>
      <button type="button" onClick={() => setAdding(true)}>
        {words.addPasskey}
      </button>
      {isAdding && (
        <Confirm
          title={words.addPasskey}
          action={words.addPasskey}
          isBad={false}
          onConfirm={add}
          onClose={() => setAdding(false)}
        >
          <label>
            {t().name}
            <input type="text" name="name" required maxLength={64} dir="auto" />
          </label>
          {account.has_password && <PasswordField label={words.currentPassword} name="password" />}
        </Confirm>
      )}
    </section>
  );
}
