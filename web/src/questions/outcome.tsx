/** A call that a crash has interrupted, and that may have run: only a person can say what became of it. */
import { CircleHelp } from "lucide";
import { useState } from "preact/hooks";
import { CallView } from "../chat/call-view";
import { visible } from "../chat/whole-call";
import type { OutcomeRequestedEvent } from "../types";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { moment } from "../words/count";
import { filled } from "../words/filled";
import { q } from "../words/questions";
import { decideOutcome, type OutcomeDecision, tell } from "./calls";
import { useWholeCall } from "./whole";

export function OutcomeCard({ outcome, runId }: { outcome: OutcomeRequestedEvent; runId: string }) {
  const [isSent, setSent] = useState(false);
  const { call, isSeen, look } = useWholeCall();
  const decide = async (decision: OutcomeDecision) => {
    setSent(true);
    await tell(decideOutcome(runId, outcome.id, { decision }));
    setSent(false);
  };
  const tool = visible(outcome.tool);
  return (
    <div class="question outcome" role="alertdialog" aria-label={q().mayHaveRun(tool)} data-outcome={outcome.id}>
      <p>
        <Icon node={CircleHelp} size={16} />
        <span>{filled(q().mayHaveRun("{}"), <code>{tool}</code>)}</span>
      </p>
      <p class="note">{q().interruptedAt(moment(outcome.since * 1_000))}</p>
      <div class="call" ref={call} onScroll={look} tabIndex={0} role="group" aria-label={t().arguments}>
        <CallView arguments={outcome.arguments} />
      </div>
      {outcome.printed && (
        <>
          <p class="part">{t().outputSoFar}</p>
          <pre dir="auto" class="printed" tabIndex={0} role="group" aria-label={t().outputSoFar}>
            {visible(outcome.printed)}
          </pre>
        </>
      )}
      {outcome.problem && <p class="note">{visible(outcome.problem)}</p>}
      {!isSeen && <small>{q().scrollToRun}</small>}
      <footer>
        <button type="button" class="small" disabled={isSent} onClick={() => decide("skip")}>
          {q().skip}
        </button>
        <button type="button" class="small" disabled={isSent || !isSeen} onClick={() => decide("again")}>
          {q().runAgain}
        </button>
        <button type="button" class="small primary" disabled={isSent} onClick={() => decide("ran")}>
          {q().itRan}
        </button>
      </footer>
    </div>
  );
}
