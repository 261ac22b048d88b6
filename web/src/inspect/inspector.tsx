/** What really happened in a run: its summary, its story in time, its replay, and every event as it was. */
import { Square } from "lucide";
import { useEffect, useMemo } from "preact/hooks";
import { api } from "../api";
import { complain } from "../state/toasts";
import { CopyButton } from "../ui/copy";
import { Empty } from "../ui/empty";
import { Icon } from "../ui/icon";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { t } from "../words";
import { Events } from "./events";
import { RunLog } from "./log";
import { Replay } from "./replay";
import { Story } from "./story-view";
import { Summary } from "./summary";

export function Inspector({ id }: { id: string }) {
  const log = useMemo(() => new RunLog(id), [id]);
  usePageTitle(t().run);
  useEffect(() => {
    log.load();
    return () => log.close();
  }, [log]);
  const run = log.run.value;
  return (
    <>
      <ViewHeader title={t().runDetails}>
        {run && run.status !== "settled" && (
          <button type="button" class="small" onClick={() => api.stop(id).catch(complain)}>
            <Icon node={Square} size={14} /> {t().stop}
          </button>
        )}
        <CopyButton text={id} label={t().copyRunId} />
        <a class="button quiet small" href="/runs">
          {t().allRuns}
        </a>
      </ViewHeader>
      <Body log={log} />
    </>
  );
}

function Body({ log }: { log: RunLog }) {
  log.version.value;
  const run = log.run.value;
  if (log.problem.value && !run) {
    return (
      <Empty title={t().runFailed} text={log.problem.value}>
        <button type="button" onClick={() => log.load()}>
          {t().tryAgain}
        </button>
      </Empty>
    );
  }
  if (!run) return <output class="loading" aria-label={t().loading} />;
  return (
    <div class="page inspector" data-run={run.id} data-whole={log.isWhole}>
      <Summary run={run} log={log} />
      {log.problem.value && <p class="problem">{log.problem.value}</p>}
      {log.missing.value && (
        <section>
          <h2>{t().events}</h2>
          <p class="note">
            {log.missing.value} {t().eventsMissing}
          </p>
        </section>
      )}
      {log.events.length > 0 && (
        <>
          <Story log={log} />
          <Replay log={log} />
          <Events log={log} />
        </>
      )}
    </div>
  );
}
