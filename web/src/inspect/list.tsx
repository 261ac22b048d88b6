/** All runs, the newest first. */
import { useEffect, useRef, useState } from "preact/hooks";
import { api } from "../api";
import type { ListedRun } from "../types";
import { Empty } from "../ui/empty";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { t } from "../words";
import { moment } from "../words/count";
import { seconds } from "../words/time";
import { OutcomeBadge } from "./outcome-badge";

export function RunList() {
  const [runs, setRuns] = useState<ListedRun[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  const [outcome, setOutcome] = useState("");
  const newest = useRef(0);
  const load = async (before = "") => {
    const mine = ++newest.current;
    try {
      const page = await api.runs({ limit: "50", ...(before && { before }), ...(outcome && { outcome }) });
      if (mine !== newest.current) return; // the filter is another one by now
      setRuns((known) => [...(before ? (known ?? []) : []), ...page.runs]);
      setNext(page.next);
      setProblem("");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  usePageTitle(t().runs);
  useEffect(() => {
    load();
  }, [outcome]);
  return (
    <>
      <ViewHeader title={t().runs}>
        <select
          aria-label={t().outcomeFilter}
          value={outcome}
          onChange={(event) => setOutcome(event.currentTarget.value)}
        >
          <option value="">{t().allOutcomes}</option>
          {Object.entries(t().outcomes).map(([name, told]) => (
            <option key={name} value={name}>
              {told}
            </option>
          ))}
        </select>
      </ViewHeader>
      {problem && (
        <Empty title={t().runsFailed} text={problem}>
          <button type="button" onClick={() => load()}>
            {t().tryAgain}
          </button>
        </Empty>
      )}
      {!problem && !runs && <output class="loading" aria-label={t().loading} />}
      {runs?.length === 0 && !outcome && <Empty title={t().noRuns} text={t().noRunsMore} />}
      {runs?.length === 0 && outcome && !next && <Empty title={t().noResults} />}
      {runs && (runs.length > 0 || next) && (
        <div class="page run-list">
          <ul>
            {runs.map((run) => (
              <li key={run.id}>
                <a href={`/runs/${run.id}`}>
                  <span class="text" dir="auto">
                    {plain(run.question) || preview(run)}
                  </span>
                  {run.question && (
                    <span class="about" dir="auto">
                      {preview(run)}
                    </span>
                  )}
                  <span class="about">
                    {[run.session_title, run.model, moment(run.created_at)].filter(Boolean).join(" · ")}
                  </span>
                </a>
                <OutcomeBadge run={run} />
              </li>
            ))}
          </ul>
          {next && (
            <button type="button" class="link" onClick={() => load(next)}>
              {t().showMore}
            </button>
          )}
        </div>
      )}
    </>
  );
}

/** The beginning of a run's text; or why there is none. */
function preview({ text, settlement, waits_for }: ListedRun): string {
  if (waits_for && !text) {
    const told = waits_for.what === "prompt" ? t().readingPrompt : t().waitingFor;
    return told(seconds(Math.max(0, Date.now() - Date.parse(waits_for.since))));
  }
  return plain(text) || (settlement ? (settlement.error?.message ?? t().noOutput) : t().noOutputYet);
}

/** The beginning of a text, without the marks of Markdown. */
function plain(text: string): string {
  return text
    .slice(0, 300)
    .replace(/\*\*|`|^#{1,6} /gm, "")
    .slice(0, 200);
}
