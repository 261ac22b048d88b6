/** What a person may use, how much of it is left, and when it is renewed. */

import { money } from "../chat/figures";
import { Shown, useLoaded } from "../ui/loaded";
import { moment, number } from "../words/count";
import { a } from "../words/people";
import { calls, type Limit, type Rest } from "./calls";

export function OwnLimits() {
  const budget = useLoaded(calls.budget);
  return (
    <Shown of={budget}>
      {({ limits, currency }) =>
        limits.length > 0 && (
          <ul class="cards">
            {limits.flatMap((limit) =>
              (["tokens", "cost"] as const).flatMap((what) => {
                const rest = limit[what];
                const told = (amount: number) => (what === "cost" ? money(amount, currency) : number(amount));
                return rest ? [<Line key={limit.id + limit.per + what} limit={limit} rest={rest} told={told} />] : [];
              }),
            )}
          </ul>
        )
      }
    </Shown>
  );
}

function Line({ limit, rest, told }: { limit: Limit; rest: Rest; told: (amount: number) => string }) {
  const words = a();
  return (
    <li data-limit={`${limit.of} ${limit.per}`}>
      <div>
        <strong>{words.limitLeft(told(rest.left), told(rest.limit))}</strong>
        <p class="note">
          {words.limitWhose[limit.of]} · {words.limitRenewed(moment(limit.renews_at))}
        </p>
      </div>
      <meter min={0} max={rest.limit} value={rest.used} aria-label={words.limitWhose[limit.of]} />
    </li>
  );
}
