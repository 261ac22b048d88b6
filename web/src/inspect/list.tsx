/** All runs, the newest first. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import type { Run } from "../types";
import { Empty } from "../ui/empty";
import { ViewHeader } from "../ui/view-header";
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
  useEffect(() => {
    document.title = "Runs · Holdfast";
    load();
  }, []);
  return (
    <>
      <ViewHeader title="Runs" />
      {problem && (
        <Empty title="The runs could not be loaded" text={problem}>
          <button type="button" onClick={() => load()}>
            Try again
          </button>
        </Empty>
      )}
      {!problem && !runs && <output class="loading" aria-label="Loading" />}
      {runs?.length === 0 && (
        <Empty title="No runs yet" text="Each answer of a model is a run. They will be listed here." />
      )}
      {Boolean(runs?.length) && (
        <div class="page run-list">
          <ul>
            {runs!.map((run) => (
              <li key={run.id}>
                <a href={`/runs/${run.id}`}>
                  <span class="text" dir="auto">
                    {run.text.slice(0, 200) || "Nothing was said"}
                  </span>
                  <span class="about">
                    {run.model} ·{" "}
                    {new Date(run.created_at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" })}
                  </span>
                </a>
                <OutcomeBadge run={run} />
              </li>
            ))}
          </ul>
          {next && (
            <button type="button" class="link" onClick={() => load(next)}>
              Show more
            </button>
          )}
        </div>
      )}
    </>
  );
}
