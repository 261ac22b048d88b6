/** What a person sees who must set up a second factor before anything else. */

import { calls } from "../people/calls";
import { Entrance } from "../people/entrance";
import { enter, leave } from "../people/passing";
import { SetUpFactor } from "../people/second-factor";
import { Shown, useLoaded } from "../ui/loaded";
import { t } from "../words";
import { a } from "../words/people";

export default function SecondFactorView() {
  const account = useLoaded(calls.account);
  const words = a();
  return (
    <Entrance title={words.secondFactor}>
      <p>{words.factorRequired}</p>
      <Shown of={account}>{(own) => <SetUpFactor account={own} onDone={enter} />}</Shown>
      <button type="button" class="link" onClick={leave}>
        {t().signOut}
      </button>
    </Entrance>
  );
}
