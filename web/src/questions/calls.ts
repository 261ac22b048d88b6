/** The answers of a person to what a run asks. */
import { ApiError, call } from "../api";
import { current } from "../state/current";
import { complain } from "../state/toasts";
import type { Run } from "../types";

export type ApprovalScope = "once" | "session" | "always";

export interface Decision {
  decision: "allow" | "deny";
  scope: ApprovalScope;
  note?: string;
  /** For longer than once: only calls that begin so. */
  beginning?: string;
  /** With these it runs, in place of the model's. */
  arguments?: Record<string, unknown>;
}

export type OutcomeDecision = "ran" | "again" | "skip";

export type FormDecision = "accept" | "decline" | "cancel";

export const decide = (runId: string, approval: string, body: Decision) =>
  call<Run>("POST", `/api/runs/${runId}/approvals/${approval}`, { body });

export const decideOutcome = (runId: string, outcome: string, body: { decision: OutcomeDecision }) =>
  call<Run>("POST", `/api/runs/${runId}/outcomes/${outcome}`, { body });

export const fillIn = (runId: string, input: string, body: { decision: FormDecision; content: object }) =>
  call<Run>("POST", `/api/runs/${runId}/inputs/${input}`, { body });

/** Send an answer, from a chat or from a pane. If the question is no longer open, the chat is read again. */
export async function tell(send: Promise<unknown>): Promise<boolean> {
  try {
    await send;
    return true;
  } catch (error) {
    complain(error);
    if (error instanceof ApiError && (error.status === 409 || error.status === 404)) current.value?.load();
    return false;
  }
}
