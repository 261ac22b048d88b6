/** How a run ended, in a person's words. Only `completed` says nothing: that is what one expects. */
import type { Outcome, Settlement } from "../types";
import { t } from "../words";

export interface Told {
  label: string;
  detail: string;
  kind: "plain" | "warning" | "bad";
}

const STOPPED = {
  disconnect: "clientLeft",
  replaced: "tookItsPlace",
  budget: "reachedBudget",
  shutdown: "shuttingDown",
} as const;

export function tellOutcome(outcome: Outcome | null, settlement: Settlement | null): Told | null {
  switch (outcome) {
    case "stopped":
      return { label: t().stopped, detail: stoppedBy(settlement), kind: "plain" };
    case "truncated":
      return { label: t().cutOff, detail: cutOff(settlement?.finish_reason ?? ""), kind: "warning" };
    case "failed":
      return { label: t().failed, detail: settlement?.error?.message ?? "", kind: "bad" };
    case "interrupted":
      return { label: t().interrupted, detail: t().serverWentDown, kind: "warning" };
    default:
      return null;
  }
}

function stoppedBy(settlement: Settlement | null): string {
  const by = settlement?.by;
  return by && by !== "user" ? t()[STOPPED[by]] : "";
}

function cutOff(reason: string): string {
  if (reason === "length" || reason === "max_tokens") return t().reachedLength;
  return reason ? t().providerEnded(reason.replaceAll("_", " ")) : "";
}
