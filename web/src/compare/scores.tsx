/** What the votes say: ratings with the doubt that is left, and how each model fared. */
import { Download } from "lucide";
import { useEffect, useState } from "preact/hooks";
import { seconds } from "../chat/figures";
import { Empty } from "../ui/empty";
import { Icon } from "../ui/icon";
import { saveFrom } from "../ui/save";
import { calls, type ScoresQuery, scoresPath } from "./calls";
import type { Score, Scores } from "./types";

const DAY = 86_400_000;
const TIMES: [string, number][] = [
  ["All time", 0],
  ["The last 24 hours", 1],
  ["The last 7 days", 7],
  ["The last 30 days", 30],
];

export function ScoresPage() {
  const [kind, setKind] = useState("");
  const [days, setDays] = useState(0);
  const [scores, setScores] = useState<Scores | null>(null);
  const [problem, setProblem] = useState("");
  const query: ScoresQuery = {
    ...(kind.trim() && { kind: kind.trim() }),
    ...(days && { since: new Date(Date.now() - days * DAY).toISOString() }),
  };
  const load = () =>
    calls.scores(query).then(
      (answer) => {
        setScores(answer);
        setProblem("");
      },
      (error: Error) => setProblem(error.message),
    );
  useEffect(() => {
    const timer = setTimeout(load, kind ? 250 : 0);
    return () => clearTimeout(timer);
  }, [kind, days]);
  return (
    <div class="page scores">
      <div class="filters">
        <label>
          Kind
          <input
            type="text"
            placeholder="all kinds"
            value={kind}
            onInput={(event) => setKind(event.currentTarget.value)}
          />
        </label>
        <label>
          Time
          <select value={days} onChange={(event) => setDays(Number(event.currentTarget.value))}>
            {TIMES.map(([label, value]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <span class="space" />
        <button type="button" class="small" onClick={() => saveFrom(scoresPath(query, "csv"), "scores.csv")}>
          <Icon node={Download} size={14} /> Scores as CSV
        </button>
        <button type="button" class="small" onClick={() => saveFrom(scoresPath(query, "csv", "export"), "votes.csv")}>
          <Icon node={Download} size={14} /> Votes as CSV
        </button>
      </div>
      {problem && (
        <Empty title="The scores could not be loaded" text={problem}>
          <button type="button" onClick={load}>
            Try again
          </button>
        </Empty>
      )}
      {!problem && !scores && <output class="loading" aria-label="Loading" />}
      {!problem && scores && <Table scores={scores} />}
    </div>
  );
}

function Table({ scores: { models, counted } }: { scores: Scores }) {
  if (!models.length) {
    return (
      <Empty title="Nothing to score yet" text="Compare models blind and vote: each vote moves the ratings.">
        <a class="button" href="/compare">
          Compare
        </a>
      </Empty>
    );
  }
  const ranked = [...models].sort((one, other) => (other.rating ?? -Infinity) - (one.rating ?? -Infinity));
  const scale = scaleOf(models);
  return (
    <>
      <div class="table-place" tabIndex={0} role="region" aria-label="Scores">
        <table>
          <thead>
            <tr>
              <th scope="col">Model</th>
              <th scope="col">Rating, 95% interval</th>
              <th scope="col">Won</th>
              <th scope="col" title="Wins, losses and ties, pair by pair">
                W / L / T
              </th>
              <th scope="col">Answers</th>
              <th scope="col">First word</th>
              <th scope="col">Tokens/s</th>
              <th scope="col">Tokens</th>
              <th scope="col">Cost</th>
            </tr>
          </thead>
          <tbody>
            {ranked.map((score) => (
              <Row key={score.model} score={score} scale={scale} />
            ))}
          </tbody>
        </table>
      </div>
      <p class="note">
        Ratings come from {count(counted.blind_votes, "blind vote")} alone; {count(counted.other_votes, "other vote")}{" "}
        {counted.other_votes === 1 ? "rates" : "rate"} nobody. First word and speed are medians over answers that
        completed.
      </p>
    </>
  );
}

function Row({ score, scale }: { score: Score; scale: [number, number] }) {
  return (
    <tr data-model={score.model}>
      <th scope="row">{score.model}</th>
      <td>
        <Rating score={score} scale={scale} />
      </td>
      <td>{score.win_rate === null ? "–" : `${Math.round(score.win_rate * 100)}%`}</td>
      <td title={score.all_bad ? `${score.all_bad} times none was good` : undefined}>
        {score.wins} / {score.losses} / {score.ties}
      </td>
      <td>
        <Outcomes score={score} />
      </td>
      <td>{score.ttft_ms_p50 === null ? "–" : seconds(score.ttft_ms_p50)}</td>
      <td>{score.tokens_per_second_p50 === null ? "–" : score.tokens_per_second_p50.toFixed(0)}</td>
      <td>{score.output_tokens.toLocaleString()}</td>
      <td>{score.cost === null ? "–" : `$${score.cost.toFixed(3)}`}</td>
    </tr>
  );
}

function Rating({ score: { rating, low, high }, scale: [from, to] }: { score: Score; scale: [number, number] }) {
  if (rating === null) return <span class="note">not rated yet</span>;
  const x = (value: number | null) => (((value ?? rating) - from) / (to - from)) * 100;
  return (
    <span class="rating">
      <strong>{Math.round(rating)}</strong>
      <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <rect class="interval" x={x(low)} y="3.5" width={Math.max(0.5, x(high) - x(low))} height="3" rx="1" />
        <rect class="point" x={x(rating) - 0.8} y="1" width="1.6" height="8" />
      </svg>
      <small>
        {Math.round(low ?? rating)} to {Math.round(high ?? rating)}
      </small>
    </span>
  );
}

function scaleOf(models: Score[]): [number, number] {
  const lows = models.flatMap(({ low }) => (low === null ? [] : [low]));
  const highs = models.flatMap(({ high }) => (high === null ? [] : [high]));
  const [from, to] = [Math.min(900, ...lows), Math.max(1100, ...highs)];
  return [from - 10, to + 10];
}

const OUTCOMES = ["completed", "truncated", "stopped", "interrupted", "failed"] as const;

/** How the answers ended: green is not enough to tell it, so the words are there too. */
function Outcomes({ score }: { score: Score }) {
  const told = OUTCOMES.filter((outcome) => score[outcome]).map((outcome) => `${score[outcome]} ${outcome}`);
  let at = 0;
  return (
    <span class="outcomes" title={told.join(", ")}>
      <svg viewBox={`0 0 ${Math.max(1, score.panes)} 1`} preserveAspectRatio="none" aria-hidden="true">
        {OUTCOMES.map((outcome) => {
          const rect = <rect key={outcome} class={outcome} x={at} y="0" width={score[outcome]} height="1" />;
          at += score[outcome];
          return rect;
        })}
      </svg>
      <small>{told.join(", ")}</small>
    </span>
  );
}

function count(number: number, what: string): string {
  return `${number.toLocaleString()} ${what}${number === 1 ? "" : "s"}`;
}
