/** How a run ended, in a person's words. Only `completed` says nothing: that is what one expects. */
import type { Outcome, Settlement } from "../types";

export interface Told {
  label: string;
  detail: string;
  kind: "plain" | "warning" | "bad";
}

const STOPPED: Record<string, string> = {
  disconnect: "The client that asked for it left.",
  replaced: "Your next message took its place.",
  budget: "It reached its budget.",
  shutdown: "The server was shutting down.",
};

export function tellOutcome(outcome: Outcome | null, settlement: Settlement | null): Told | null {
  switch (outcome) {
    case "stopped":
      return { label: "Stopped", detail: STOPPED[settlement?.by ?? ""] ?? "", kind: "plain" };
    case "truncated":
      return { label: "Cut off", detail: cutOff(settlement?.finish_reason ?? ""), kind: "warning" };
    case "failed":
      return { label: "Failed", detail: settlement?.error?.message ?? "", kind: "bad" };
    case "interrupted":
      return { label: "Interrupted", detail: "The server went down while it was answering.", kind: "warning" };
    default:
      return null;
  }
}

function cutOff(reason: string): string {
  if (reason === "length" || reason === "max_tokens") return "It reached the length limit.";
  return reason ? `The model's provider ended it (${reason.replaceAll("_", " ")}).` : "";
}
