/** A run in a few figures, how it ended and why, and the receipt of its stop. */
import { tellOutcome } from "../chat/outcome";
import { WhatToDo } from "../chat/what-to-do";
import type { Run, Settlement } from "../types";
import { t } from "../words";
import { clock, moment, number } from "../words/count";
import { seconds } from "../words/time";
import type { RunLog } from "./log";
import { OutcomeBadge } from "./outcome-badge";

export function Summary({ run, log }: { run: Run; log: RunLog }) {
  log.version.value; // times come after events
  const { settlement } = run;
  const told = tellOutcome(settlement?.outcome ?? null, settlement);
  return (
    <section aria-label={t().summary}>
      <div class="run-title">
        <OutcomeBadge run={run} />
        <h2>{run.model}</h2>
      </div>
      {told && told.label !== t().stopped && (
        <div class={`outcome ${told.kind}`} role="note">
          <span>
            <strong>{told.label}.</strong> {told.detail} <WhatToDo told={told} />
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
      {run.comparison_id && (
        <a class="link" href={`/compare/${run.comparison_id}`}>
          {t().openComparison}
        </a>
      )}
      {run.session_id && !run.comparison_id && (
        <a class="link" href={`/s/${run.session_id}${run.message_id ? `#${run.message_id}` : ""}`}>
          {t().openChat}
        </a>
      )}
    </section>
  );
}

function facts(run: Run, log: RunLog): [string, string][] {
  const { settlement, started_at, settled_at } = run;
  const took = started_at && settled_at ? Date.parse(settled_at) - Date.parse(started_at) : null;
  const waited = started_at ? Date.parse(started_at) - Date.parse(run.created_at) : 0;
  const ttft = log.ttft ?? (run.session_id ? null : heardFirst(log));
  const found: [string, string | null | undefined | false][] = [
    [t().facts.started, started_at && moment(started_at)],
    [t().facts.waited, waited > 0 && seconds(waited)],
    [t().firstTokenTitle, ttft !== null && seconds(ttft)],
    [t().facts.took, took !== null && seconds(took)],
    [t().tokensTitle, settlement && usage(settlement)],
    [t().events, run.seq ? number(run.seq) : ""],
    [t().facts.endedBy, settlement?.by],
    [t().facts.finishReason, settlement?.finish_reason],
    [t().error, settlement?.error?.code],
    [t().facts.answeredBy, settlement?.answered_by],
    [t().facts.inBackground, run.lifetime === "detached" ? t().yes : t().no],
    [t().type, run.kind],
  ];
  return found.filter((fact): fact is [string, string] => Boolean(fact[1]));
}

const OUTPUT: readonly string[] = ["text.delta", "reasoning.delta", "tool.delta"];

/** The time to first token of a run that leaves no message, by its log: from its start, or an agent's first step. */
function heardFirst({ events, at }: RunLog): number | null {
  const asked = at[events.findIndex(({ type }) => type === "step.started")] ?? 0;
  const first = at[events.findIndex(({ type }) => OUTPUT.includes(type))];
  return first === undefined ? null : first - asked;
}

function usage({ usage: { input_tokens, output_tokens, source } }: Settlement): string {
  return (source === "estimated" ? "≈ " : "") + t().inAndOut(number(input_tokens), number(output_tokens));
}

/** The three moments of a stop: asked for, the upstream closed, and written down. */
function Receipt({ receipt }: { receipt: NonNullable<Settlement["receipt"]> }) {
  const asked = Date.parse(receipt.stop_requested_at);
  const after = (time: string | null) => {
    const passed = time ? Date.parse(time) - asked : null;
    return passed === null ? t().neverSeen : passed < 1 ? t().withinMillisecond : t().later(seconds(passed));
  };
  return (
    <div class="receipt">
      <h3>{t().stopTimeline}</h3>
      <ol>
        <li>
          <strong>{t().stopRequested}</strong>
          <span>{clock(asked)}</span>
        </li>
        <li>
          <strong>{t().upstreamClosed}</strong>
          <span>{after(receipt.upstream_closed_at)}</span>
        </li>
        <li>
          <strong>{t().saved}</strong>
          <span>{after(receipt.settled_at)}</span>
        </li>
      </ol>
    </div>
  );
}
