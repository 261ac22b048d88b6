/** What people see who are not signed in: to sign in, to make the first account, to set a password. */

import { calls } from "../people/calls";
import { Entrance } from "../people/entrance";
import { FirstAdmin } from "../people/first-admin";
import { Reset } from "../people/reset";
import { SignIn } from "../people/sign-in";
import { place } from "../router";
import { ways as known } from "../state/caller";
import { Shown, useLoaded } from "../ui/loaded";
import { t } from "../words";
import { a } from "../words/people";

export default function EntranceView() {
  const { view } = place.value;
  if (view === "first-admin") return <FirstAdmin />;
  if (view === "reset") return <Reset />;
  return <WaysIn />;
}

/** Asks for a password or a code: what this server takes. */
function WaysIn() {
  const ways = useLoaded(async () => known.value ?? calls.ways());
  if (ways.state.is !== "ready") {
    return (
      <Entrance title={a().signInTo}>
        <Shown of={ways}>{() => null}</Shown>
      </Entrance>
    );
  }
  const found = ways.state.value;
  if (found.accounts) return <SignIn ways={found} />;
  if (found.first_admin) return <FirstAdmin />;
  return <NoAccounts />;
}

function NoAccounts() {
  return (
    <Entrance title={a().noAccounts}>
      <p>{a().noAccountsWhy}</p>
      <a class="button primary wide" href="/" target="_self">
        {t().startNewChat}
      </a>
    </Entrance>
  );
}
