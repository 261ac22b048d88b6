/** How a run ended, in a person's words. Only `completed` says nothing: that is what one expects. */
import type { Outcome, Settlement } from "../types";
import { t } from "../words";

export interface Told {
  label: string;
  detail: string;
  kind: "plain" | "warning" | "bad";
  /** The page about the error, on this server. */
  help?: string | null;
}

const STOPPED = {
  disconnect: "pageClosed",
  replaced: "replaced",
  budget: "budgetReached",
  shutdown: "shuttingDown",
  revoked: "keyRevoked",
} as const;

export function tellOutcome(outcome: Outcome | null, settlement: Settlement | null): Told | null {
  switch (outcome) {
    case "stopped":
      return { label: stoppedBy(settlement), detail: "", kind: "plain" };
    case "truncated":
      return { ...truncatedBy(settlement?.finish_reason ?? ""), kind: "warning" };
    case "failed":
      return {
        label: t().failed,
        detail: settlement?.error?.message ?? "",
        kind: "bad",
        help: settlement?.error?.help,
      };
    case "interrupted":
      return { label: t().interrupted, detail: t().serverCrashed, kind: "warning" };
    default:
      return null;
  }
}

function stoppedBy(settlement: Settlement | null): string {
  const by = settlement?.by;
  return by && by !== "user" ? t()[STOPPED[by]] : t().stopped;
}

function truncatedBy(reason: string): Pick<Told, "label" | "detail"> {
  if (reason === "length" || reason === "max_tokens") return { label: t().tokenLimit, detail: "" };
  if (reason === "content_filter") return { label: t().truncated, detail: t().contentFilter };
  return { label: t().truncated, detail: reason ? t().providerEnded(reason.replaceAll("_", " ")) : "" };
}
