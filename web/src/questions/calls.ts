/** The answers of a person to what a run asks. */
import { call } from "../api";
import type { Run } from "../types";

export type ApprovalScope = "once" | "session" | "always";

export interface Decision {
  decision: "allow" | "deny";
  scope: ApprovalScope;
  note?: string;
}

export type OutcomeDecision = "ran" | "again" | "skip";

export const decide = (runId: string, approval: string, body: Decision) =>
  call<Run>("POST", `/api/runs/${runId}/approvals/${approval}`, { body });

export const decideOutcome = (runId: string, outcome: string, body: { decision: OutcomeDecision }) =>
  call<Run>("POST", `/api/runs/${runId}/outcomes/${outcome}`, { body });
