/** Tool calls that wait for approval: nothing runs before a person allows it. */
import { ShieldQuestion } from "lucide";
import { useState } from "preact/hooks";
import { CallView } from "../chat/call-view";
import { visible } from "../chat/whole-call";
import type { ApprovalRequestedEvent } from "../types";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { filled } from "../words/filled";
import { q } from "../words/questions";
import { type ApprovalScope, type Decision, decide as send, tell } from "./calls";
import { EditCall } from "./edit";
import { useWholeCall } from "./whole";

interface CardProps {
  approval: ApprovalRequestedEvent;
  runId: string;
  /** There is no chat on the server for which a call could be allowed. */
  isTemporary: boolean;
}

export function ApprovalCard({ approval, runId, isTemporary }: CardProps) {
  const [isSent, setSent] = useState(false);
  const [isEdited, setEdited] = useState(false);
  const [reason, setReason] = useState("");
  const { call, isSeen, look } = useWholeCall();
  const answer = async (decision: Decision) => {
    setSent(true);
    await tell(send(runId, approval.id, decision));
    setSent(false);
  };
  const { beginning } = approval;
  const allow = (scope: ApprovalScope) => answer({ decision: "allow", scope });
  const allowBeginning = () => answer({ decision: "allow", scope: "always", beginning });
  const deny = () => answer({ decision: "deny", scope: "once", ...(reason.trim() && { note: reason.trim() }) });
  const isLocked = isSent || !isSeen;
  return (
    <div
      class="question approval"
      role="alertdialog"
      aria-label={q().allowTool(approval.tool)}
      data-approval={approval.id}
    >
      <p>
        <Icon node={ShieldQuestion} size={16} />
        <span>{filled(q().allowCall, <code>{visible(approval.tool)}</code>)}</span>
      </p>
      {isEdited ? (
        <EditCall
          arguments={approval.arguments}
          isSent={isSent}
          onAllow={(changed) => answer({ decision: "allow", scope: "once", arguments: changed })}
          onCancel={() => setEdited(false)}
        />
      ) : (
        <div class="call" ref={call} onScroll={look} tabIndex={0} role="group" aria-label={t().arguments}>
          <CallView arguments={approval.arguments} preview={approval.preview} />
        </div>
      )}
      {!isSeen && <small>{q().scrollToAllow}</small>}
      {!isEdited && (
        <>
          <footer>
            <form
              class="denial"
              onSubmit={(event) => {
                event.preventDefault();
                deny();
              }}
            >
              <input
                type="text"
                dir="auto"
                aria-label={q().denyReason}
                placeholder={q().denyReason}
                value={reason}
                onInput={(event) => setReason(event.currentTarget.value)}
              />
              <button type="submit" class="small" disabled={isSent}>
                {q().deny}
              </button>
            </form>
            <button type="button" class="small" disabled={isLocked} onClick={() => setEdited(true)}>
              {q().edit}
            </button>
            {!isTemporary && (
              <button
                type="button"
                class="small"
                disabled={isLocked}
                title={q().allowForChatHint(visible(approval.tool))}
                onClick={() => allow("session")}
              >
                {q().allowForChat}
              </button>
            )}
            <button type="button" class="small primary" disabled={isLocked} onClick={() => allow("once")}>
              {q().allowOnce}
            </button>
          </footer>
          {beginning && (
            <p class="always">
              <button type="button" class="link" disabled={isLocked} onClick={allowBeginning}>
                <span>{filled(q().allowBeginning, <code>{visible(beginning)}</code>)}</span>
              </button>
              <small>{q().allowBeginningHint}</small>
            </p>
          )}
          <p class="always">
            <button type="button" class="link" disabled={isLocked} onClick={() => allow("always")}>
              {q().alwaysAllow}
            </button>
            <small>{q().alwaysAllowHint(visible(approval.tool))}</small>
          </p>
        </>
      )}
    </div>
  );
}
