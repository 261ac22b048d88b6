/** Tool calls that wait for approval: nothing runs before a person allows it. */
import { ShieldQuestion } from "lucide";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { type ApprovalScope, api } from "../api";
import { act } from "../state/current";
import type { Approval, LiveRun } from "../state/live";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { filled } from "../words/filled";
import { CallView } from "./call-view";
import { visible } from "./whole-call";

export function Approvals({ live, isTemporary }: { live: LiveRun; isTemporary: boolean }) {
  const waiting = live.approvals.filter(({ decision }) => decision === null);
  return waiting.map((approval) => (
    <ApprovalCard key={approval.id} approval={approval} runId={live.id} isTemporary={isTemporary} />
  ));
}

interface CardProps {
  approval: Approval;
  runId: string;
  /** There is no chat on the server for which a call could be allowed. */
  isTemporary: boolean;
}

function ApprovalCard({ approval, runId, isTemporary }: CardProps) {
  const [isSent, setSent] = useState(false);
  const [reason, setReason] = useState("");
  const { call, isSeen, look } = useWholeCall();
  const decide = async (decision: "allow" | "deny", scope: ApprovalScope = "once") => {
    setSent(true);
    const note = decision === "deny" ? reason.trim() : "";
    await act(() => api.decide(runId, approval.id, { decision, scope, ...(note && { note }) }));
    setSent(false);
  };
  const isLocked = isSent || !isSeen;
  return (
    <div class="approval" role="alertdialog" aria-label={t().allowTool(approval.tool)} data-approval={approval.id}>
      <p>
        <Icon node={ShieldQuestion} size={16} />
        <span>{filled(t().allowCall, <code>{visible(approval.tool)}</code>)}</span>
      </p>
      <div class="call" ref={call} onScroll={look} tabIndex={0} role="group" aria-label={t().arguments}>
        <CallView arguments={approval.arguments} preview={approval.preview} />
      </div>
      {!isSeen && <small>{t().scrollToAllow}</small>}
      <footer>
        <form
          class="denial"
          onSubmit={(event) => {
            event.preventDefault();
            decide("deny");
          }}
        >
          <input
            type="text"
            dir="auto"
            aria-label={t().denyReason}
            placeholder={t().denyReason}
            value={reason}
            onInput={(event) => setReason(event.currentTarget.value)}
          />
          <button type="submit" class="small" disabled={isSent}>
            {t().deny}
          </button>
        </form>
        {!isTemporary && (
          <button type="button" class="small" disabled={isLocked} onClick={() => decide("allow", "session")}>
            {t().allowForChat}
          </button>
        )}
        <button type="button" class="small primary" disabled={isLocked} onClick={() => decide("allow")}>
          {t().allowOnce}
        </button>
      </footer>
      <p class="always">
        <button type="button" class="link" disabled={isLocked} onClick={() => decide("allow", "always")}>
          {t().alwaysAllow}
        </button>
        <small>{t().alwaysAllowHint(visible(approval.tool))}</small>
      </p>
    </div>
  );
}

/** Whether all of a call was in view: one that is longer than its box has to be scrolled to its end. */
function useWholeCall() {
  const call = useRef<HTMLDivElement>(null);
  const [isSeen, setSeen] = useState(false);
  const look = () => {
    const box = call.current;
    if (box && box.clientHeight > 0 && box.scrollTop + box.clientHeight >= box.scrollHeight - 2) setSeen(true);
  };
  useLayoutEffect(() => {
    look();
    const resized = new ResizeObserver(look);
    if (call.current) resized.observe(call.current);
    return () => resized.disconnect();
  }, []);
  return { call, isSeen, look };
}
