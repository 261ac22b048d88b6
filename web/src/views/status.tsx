/** The servers of this store, now: for administrators. */
import { useEffect, useState } from "preact/hooks";
import { call } from "../api";
import "../styles/status.css";
import "../styles/views.css";
import { Empty } from "../ui/empty";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { t } from "../words";
import { moment, number } from "../words/count";
import { seconds } from "../words/time";

const EVERY = 2_000;

interface LastMinute {
  runs: number;
  failed: number;
  tokens: number;
  ttft_p50_ms: number | null;
  ttft_p95_ms: number | null;
  stop_p95_ms: number | null;
  errors: Record<string, number>;
}

interface Node {
  id: string;
  number: number;
  this: boolean;
  alive: boolean;
  draining: boolean;
  since: string;
  version: string;
  address: string | null;
  runs: number;
  lease_left: number;
  last_minute: LastMinute | null;
}

/** The newest answer, asked for again and again while the page is seen and not paused. */
function useNodes(isPaused: boolean) {
  const [nodes, setNodes] = useState<Node[] | null>(null);
  const [problem, setProblem] = useState("");
  const load = async () => {
    try {
      setNodes((await call<{ nodes: Node[] }>("GET", "/api/nodes")).nodes);
      setProblem("");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  useEffect(() => {
    load();
  }, []);
  useEffect(() => {
    if (isPaused) return;
    const timer = setInterval(() => !document.hidden && load(), EVERY);
    return () => clearInterval(timer);
  }, [isPaused]);
  return { nodes, problem, load };
}

export default function Status() {
  const [isPaused, setPaused] = useState(false);
  const { nodes, problem, load } = useNodes(isPaused);
  usePageTitle(t().status);
  return (
    <>
      <ViewHeader title={t().status}>
        {nodes && (
          <button type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>
            {t().pauseUpdates}
          </button>
        )}
      </ViewHeader>
      {problem && !nodes && (
        <Empty title={t().viewFailed} text={problem}>
          <button type="button" onClick={load}>
            {t().tryAgain}
          </button>
        </Empty>
      )}
      {!problem && !nodes && <output class="loading" aria-label={t().loading} />}
      {nodes && (
        <div class="page status">
          {problem && <p class="problem">{problem}</p>}
          <Totals nodes={nodes} />
          <ul class="nodes">
            {nodes.map((node) => (
              <NodeCard key={node.id} node={node} />
            ))}
          </ul>
          <Errors nodes={nodes} />
        </div>
      )}
    </>
  );
}

function Figure({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function Totals({ nodes }: { nodes: Node[] }) {
  const told = nodes.flatMap(({ last_minute }) => last_minute ?? []);
  const sum = (value: (of: LastMinute) => number) => number(told.reduce((total, each) => total + value(each), 0));
  const running = nodes.reduce((total, { runs }) => total + runs, 0);
  return (
    <section aria-labelledby="totals">
      <h2 id="totals">{t().lastMinute}</h2>
      <dl class="figures totals">
        <Figure name={t().runningNow} value={number(running)} />
        <Figure name={t().runsSettled} value={sum(({ runs }) => runs)} />
        <Figure name={t().runsFailedCount} value={sum(({ failed }) => failed)} />
        <Figure name={t().outputTokens} value={sum(({ tokens }) => tokens)} />
      </dl>
    </section>
  );
}

function NodeCard({ node }: { node: Node }) {
  const told = node.last_minute;
  return (
    <li data-node={node.number}>
      <h2>
        {t().server(node.number)} <State node={node} />
        {node.this && <span class="badge">{t().answersYou}</span>}
      </h2>
      <dl class="figures">
        <Figure name={t().runningNow} value={number(node.runs)} />
        {told && <Figure name={t().runsSettled} value={number(told.runs)} />}
        {told && <Figure name={t().runsFailedCount} value={number(told.failed)} />}
        {told && <Figure name={t().outputTokens} value={number(told.tokens)} />}
        {told && <Figure name={t().firstTokenTimes} value={pair(told.ttft_p50_ms, told.ttft_p95_ms)} />}
        {told && <Figure name={t().stopTime} value={time(told.stop_p95_ms)} />}
      </dl>
      <p class="note">
        <bdi>{node.version}</bdi>
        {node.address && (
          <>
            {" · "}
            <bdi>{node.address}</bdi>
          </>
        )}
        {" · "}
        {t().upSince(moment(node.since, "short"))}
      </p>
    </li>
  );
}

function State({ node: { alive, draining } }: { node: Node }) {
  if (!alive) return <span class="badge bad">{t().leaseEnded}</span>;
  return draining ? (
    <span class="badge warning">{t().draining}</span>
  ) : (
    <span class="badge fine">{t().aliveServer}</span>
  );
}

function Errors({ nodes }: { nodes: Node[] }) {
  const counts = new Map<string, number>();
  for (const { last_minute } of nodes)
    for (const [code, times] of Object.entries(last_minute?.errors ?? {}))
      counts.set(code, (counts.get(code) ?? 0) + times);
  if (!counts.size) return null;
  const sorted = [...counts].sort(([, one], [, other]) => other - one);
  return (
    <section aria-labelledby="errors">
      <h2 id="errors">{t().errorsLastMinute}</h2>
      <dl class="figures errors">
        {sorted.map(([code, times]) => (
          <Figure key={code} name={code} value={number(times)} />
        ))}
      </dl>
    </section>
  );
}

function time(milliseconds: number | null): string {
  return milliseconds === null ? "–" : seconds(milliseconds);
}

function pair(half: number | null, most: number | null): string {
  return half === null ? "–" : `${time(half)} / ${time(most)}`;
}
