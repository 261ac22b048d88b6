/** A run in a few figures, how it ended and why, and the receipt of its stop. */
import { seconds } from "../chat/figures";
import { tellOutcome } from "../chat/outcome";
import type { Run, Settlement } from "../types";
import type { RunLog } from "./log";
import { OutcomeBadge } from "./outcome-badge";

export function Summary({ run, log }: { run: Run; log: RunLog }) {
  const { settlement } = run;
  const told = tellOutcome(settlement?.outcome ?? null, settlement);
  return (
    <section aria-label="Summary">
      <div class="run-title">
        <OutcomeBadge run={run} />
        <h2>{run.model}</h2>
      </div>
      {told?.detail && (
        <div class={`outcome ${told.kind}`} role="note">
          <span>
            <strong>{told.label}.</strong> {told.detail}
          </span>
        </div>
      )}
      <dl class="facts">
        {facts(run, log).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {settlement?.receipt && <Receipt receipt={settlement.receipt} />}
      {run.session_id && run.kind !== "pane" && (
        <a class="link" href={`/s/${run.session_id}`}>
          Open its session
        </a>
      )}
    </section>
  );
}

function facts(run: Run, log: RunLog): [string, string][] {
  const { settlement, started_at, settled_at } = run;
  const took = started_at && settled_at ? Date.parse(settled_at) - Date.parse(started_at) : null;
  const waited = started_at ? Date.parse(started_at) - Date.parse(run.created_at) : 0;
  const first = log.events.findIndex(
    ({ type }) => type === "text.delta" || type === "reasoning.delta" || type === "tool.delta",
  );
  const found: [string, string | null | undefined | false][] = [
    [
      "Started",
      started_at && new Date(started_at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }),
    ],
    ["Waited in the queue", waited > 0 && seconds(waited)],
    ["First word", first >= 0 && log.at[first] !== undefined && seconds(log.at[first])],
    ["Took", took !== null && seconds(took)],
    ["Tokens", settlement && usage(settlement)],
    ["Events", run.seq ? run.seq.toLocaleString() : ""],
    ["Ended by", settlement?.by],
    ["Finish reason", settlement?.finish_reason],
    ["Error", settlement?.error?.code],
    ["Answered by", settlement?.answered_by],
    ["Lifetime", run.lifetime],
    ["Kind", run.kind],
  ];
  return found.filter((fact): fact is [string, string] => Boolean(fact[1]));
}

function usage({ usage: { input_tokens, output_tokens, source } }: Settlement): string {
  return `${source === "estimated" ? "≈ " : ""}${input_tokens.toLocaleString()} in, ${output_tokens.toLocaleString()} out`;
}

/** The three moments of a stop: asked for, the upstream closed, and written down. */
function Receipt({ receipt }: { receipt: NonNullable<Settlement["receipt"]> }) {
  const asked = Date.parse(receipt.stop_requested_at);
  const after = (time: string | null) => {
    const passed = time ? Date.parse(time) - asked : null;
    return passed === null ? "never seen" : passed < 1 ? "within 1 ms" : `${seconds(passed)} later`;
  };
  return (
    <div class="receipt">
      <h3>Receipt of the stop</h3>
      <ol>
        <li>
          <strong>Stop asked for</strong>
          <span>{new Date(asked).toLocaleTimeString(undefined, { timeStyle: "medium" })}</span>
        </li>
        <li>
          <strong>Upstream closed</strong>
          <span>{after(receipt.upstream_closed_at)}</span>
        </li>
        <li>
          <strong>Settled and saved</strong>
          <span>{after(receipt.settled_at)}</span>
        </li>
      </ol>
    </div>
  );
}
