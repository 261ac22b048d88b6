/** One's own account: name, password, sign-ins, keys, usage and data. */

import { useState } from "preact/hooks";
import { calls } from "../people/calls";
import { Data } from "../people/data";
import { Keys } from "../people/keys";
import { OwnLimits } from "../people/limits";
import { Passkeys } from "../people/passkeys";
import { Password, Profile } from "../people/profile";
import { SecondFactor } from "../people/second-factor";
import { SignIns } from "../people/sign-ins";
import { UsageTable } from "../people/usage";
import { caller, isAdmin, isPerson } from "../state/caller";
import { a } from "../words/people";
import "../styles/people.css";
import "../styles/settings.css";
import "../styles/views.css";
import { Empty } from "../ui/empty";
import { Shown, useLoaded } from "../ui/loaded";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { t } from "../words";

export default function AccountView() {
  usePageTitle(t().account);
  return (
    <>
      <ViewHeader title={t().account} />
      {isPerson.value ? <OwnAccount /> : <NoPerson />}
    </>
  );
}

function NoPerson() {
  if (!caller.value) return <output class="loading" aria-label={t().loading} />;
  return <Empty title={a().noAccount} text={a().noAccountWhy} />;
}

function OwnAccount() {
  const account = useLoaded(calls.account);
  const [passwords, setPasswords] = useState(0);
  return (
    <div class="page settings">
      <Shown of={account}>
        {(own) => (
          <>
            <Profile account={own} />
            <Password account={own} asked={passwords} onChanged={() => setPasswords(passwords + 1)} />
            <SecondFactor account={own} />
            <Passkeys account={own} />
            <SignIns asked={passwords} />
            <section aria-labelledby="keys">
              <h2 id="keys">{a().apiKeys}</h2>
              <p class="note">{a().apiKeysNote}</p>
              <Keys
                path="/api/keys"
                scopes={isAdmin.value ? ["read", "chat", "batch", "admin"] : ["read", "chat", "batch"]}
              />
            </section>
            <section aria-labelledby="usage">
              <h2 id="usage">{a().usage}</h2>
              <OwnLimits />
              <UsageTable path="/api/usage" />
            </section>
            <Data account={own} />
          </>
        )}
      </Shown>
    </div>
  );
}
