/** All runs, the newest first. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import type { Run } from "../types";
import { Empty } from "../ui/empty";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { t } from "../words";
import { moment } from "../words/count";
import { OutcomeBadge } from "./outcome-badge";

export function RunList() {
  const [runs, setRuns] = useState<Run[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  const load = async (before = "") => {
    try {
      const page = await api.runs({ limit: "50", ...(before && { before }) });
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
  }, []);
  return (
    <>
      <ViewHeader title={t().runs} />
      {problem && (
        <Empty title={t().runsFailed} text={problem}>
          <button type="button" onClick={() => load()}>
            {t().tryAgain}
          </button>
        </Empty>
      )}
      {!problem && !runs && <output class="loading" aria-label={t().loading} />}
      {runs?.length === 0 && <Empty title={t().noRuns} text={t().noRunsMore} />}
      {runs && runs.length > 0 && (
        <div class="page run-list">
          <ul>
            {runs.map((run) => (
              <li key={run.id}>
                <a href={`/runs/${run.id}`}>
                  <span class="text" dir="auto">
                    {preview(run)}
                  </span>
                  <span class="about">
                    {run.model} · {moment(run.created_at)}
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

/** The beginning of a run's text, without the marks of Markdown; or why there is none. */
function preview({ text, settlement }: Run): string {
  const plain = text.slice(0, 300).replace(/\*\*|`|^#{1,6} /gm, "");
  return plain.slice(0, 200) || (settlement ? (settlement.error?.message ?? t().noOutput) : t().noOutputYet);
}
