/** Tool calls that wait for a person: nothing happens until one says so. */
import { ShieldQuestion } from "lucide";
import { useState } from "preact/hooks";
import { type ApprovalScope, api } from "../api";
import { act } from "../state/current";
import type { Approval, LiveRun } from "../state/live";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { filled } from "../words/filled";
import { indented } from "./tools";

export function Approvals({ live }: { live: LiveRun }) {
  const waiting = live.approvals.filter(({ decision }) => decision === null);
  return waiting.map((approval) => <ApprovalCard key={approval.id} approval={approval} runId={live.id} />);
}

function ApprovalCard({ approval, runId }: { approval: Approval; runId: string }) {
  const [isSent, setSent] = useState(false);
  const decide = async (decision: "allow" | "deny", scope: ApprovalScope = "once") => {
    setSent(true);
    await act(() => api.decide(runId, approval.id, decision, scope));
    setSent(false);
  };
  return (
    <div class="approval" role="alertdialog" aria-label={t().mayBeCalled(approval.tool)} data-approval={approval.id}>
      <p>
        <Icon node={ShieldQuestion} size={16} />
        <span>{filled(t().mayBeCalledWith, <code>{approval.tool}</code>)}</span>
      </p>
      <pre dir="ltr">{indented(approval.arguments)}</pre>
      <footer>
        <button type="button" disabled={isSent} onClick={() => decide("deny")}>
          {t().deny}
        </button>
        <button type="button" disabled={isSent} onClick={() => decide("allow", "session")}>
          {t().allowInSession}
        </button>
        <button type="button" class="primary" disabled={isSent} onClick={() => decide("allow")}>
          {t().allowOnce}
        </button>
      </footer>
    </div>
  );
}
