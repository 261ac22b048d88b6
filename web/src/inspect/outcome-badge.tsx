/** How a run ended, in one word. */
import type { Run } from "../types";

const KINDS: Record<string, string> = {
  completed: "fine",
  failed: "bad",
  truncated: "warning",
  interrupted: "warning",
};

export function OutcomeBadge({ run }: { run: Run }) {
  const outcome = run.settlement?.outcome ?? run.status;
  return <span class={`badge ${KINDS[outcome] ?? ""}`}>{outcome}</span>;
}
