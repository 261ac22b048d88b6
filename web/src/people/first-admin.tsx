/** The first account of a server: an admin's. From then on everyone signs in. */

import { useState } from "preact/hooks";
import { api } from "../api";
import { useAttempt } from "../ui/attempt";
import { Shown, useLoaded } from "../ui/loaded";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { filled } from "../words/filled";
import { a } from "../words/people";
import { calls } from "./calls";
import { Entrance } from "./entrance";
import { isGood, NewPassword, NOTHING_TYPED } from "./new-password";
import { enter } from "./passing";

/** Who may make the first account: who has the server's code, the only user of its machine, or nobody in this page. */
type By = "code" | "local" | "nobody" | "exists";

async function findBy(): Promise<By> {
  const ways = await calls.ways();
  if (ways.accounts) return "exists";
  if (ways.first_admin) return "code";
  const caller = await api.me().catch(() => null);
  return caller?.via === "local" ? "local" : "nobody";
}

export function FirstAdmin() {
  const by = useLoaded(findBy);
  const words = a();
  return (
    <Entrance title={words.createFirstAdmin}>
      <Shown of={by}>
        {(found) => {
          if (found === "exists") return <Elsewhere text={words.accountsExist} />;
          if (found === "nobody")
            return <p>{filled(words.makeOnServer, <code dir="ltr">holdfast user new NAME</code>)}</p>;
          return <Form needsCode={found === "code"} />;
        }}
      </Shown>
    </Entrance>
  );
}

function Elsewhere({ text }: { text: string }) {
  return (
    <>
      <p>{text}</p>
      <a class="button primary wide" href="/sign-in">
        {t().signIn}
      </a>
    </>
  );
}

function Form({ needsCode }: { needsCode: boolean }) {
  const trying = useAttempt();
  const { isBusy, attempt } = trying;
  const [name, setName] = useState("");
  const [email, setEmail] = useState("");
  const [typed, setTyped] = useState(NOTHING_TYPED);
  const words = a();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const code = String(new FormData(event.currentTarget as HTMLFormElement).get("code") ?? "").trim();
    attempt(async () => {
      await calls.firstAdmin({ code, name: name.trim(), email: email.trim(), password: typed.password });
      await enter();
    });
  };
  return (
    <form onSubmit={submit}>
      <p class="note">{needsCode ? words.firstAdminCode : words.firstAdminLocal}</p>
      {!needsCode && (
        <ul class="note changes">
          <li>{words.changeSignIn}</li>
          <li>{words.changeChats}</li>
          <li>{words.changeKeys}</li>
        </ul>
      )}
      {needsCode && (
        <label>
          {words.code}
          <input
            type="text"
            name="code"
            class="mono"
            required
            autofocus
            autocomplete="one-time-code"
            spellcheck={false}
            dir="ltr"
          />
        </label>
      )}
      <label>
        {t().name}
        <input
          type="text"
          name="username"
          autocomplete="username"
          spellcheck={false}
          required
          maxLength={64}
          dir="auto"
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
          autofocus={!needsCode}
          aria-describedby="name-rule"
        />
      </label>
      <p class="note" id="name-rule">
        {words.nameRule}
      </p>
      <label>
        {words.emailOptional}
        <input
          type="email"
          name="email"
          autocomplete="email"
          maxLength={256}
          dir="ltr"
          value={email}
          onInput={(event) => setEmail(event.currentTarget.value)}
        />
      </label>
      <NewPassword typed={typed} onChange={setTyped} others={[name, email]} />
      <Problem of={trying} />
      <button type="submit" class="primary wide" disabled={isBusy || !isGood(typed, [name, email])}>
        {words.createAccount}
      </button>
      {!needsCode && (
        <a class="button wide" href="/settings" target="_self">
          {t().cancel}
        </a>
      )}
    </form>
  );
}
