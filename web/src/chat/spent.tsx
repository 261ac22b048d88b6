/** Which budget has ended a response, and when it is renewed: until then no button could go on. */
import { useEffect, useState } from "preact/hooks";
import { call } from "../api";
import type { Limit } from "../people/calls";
import { t } from "../words";
import { moment } from "../words/count";
import { money } from "./figures";

/** The limit that lets no run start: null if there is none, as where an agent's own limit was the reason. */
export function useSpentLimit(isAsked: boolean): Limit | null | undefined {
  const [spent, setSpent] = useState<Limit | null>();
  useEffect(() => {
    if (!isAsked) return;
    const asked = call<{ limits: Limit[] }>("GET", "/api/budget");
    asked.then(({ limits }) => setSpent(limits.find(isSpent) ?? null)).catch(() => {});
  }, [isAsked]);
  return isAsked ? spent : undefined;
}

const isSpent = ({ tokens, cost }: Limit): boolean => isOver(tokens) || isOver(cost);

const isOver = (rest: Limit["tokens"]): boolean => rest !== null && rest.left <= 0;

export function Spent({ limit }: { limit: Limit | null | undefined }) {
  if (!limit) return null;
  const { of, tokens, cost, renews_at } = limit;
  const amount = tokens && isOver(tokens) ? t().tokens(tokens.limit) : money(cost?.limit ?? 0);
  return (
    <>
      {t().budgetSpent[of](amount)} {t().budgetRenews(moment(renews_at, "short"))}
    </>
  );
}
