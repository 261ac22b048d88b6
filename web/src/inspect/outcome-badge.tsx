/** How a run ended, in one word. */
import type { Run } from "../types";
import { t } from "../words";

const KINDS: Record<string, string> = {
  completed: "fine",
  failed: "bad",
  truncated: "warning",
  interrupted: "warning",
};

export function OutcomeBadge({ run }: { run: Run }) {
  if (run.needs_approval) return <span class="badge warning">{t().toolStates.waiting}</span>;
  const outcome = run.settlement?.outcome ?? run.status;
  const told = run.settlement ? t().outcomes[run.settlement.outcome] : t().statuses[run.status];
  return <span class={`badge ${KINDS[outcome] ?? ""}`}>{told}</span>;
}
