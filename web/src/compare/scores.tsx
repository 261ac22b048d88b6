/** What the votes say: ratings with the doubt that is left, and how each model fared. */
import { Download } from "lucide";
import { useEffect, useState } from "preact/hooks";
import { money } from "../chat/figures";
import { Empty } from "../ui/empty";
import { Icon } from "../ui/icon";
import { saveFrom } from "../ui/save";
import { t } from "../words";
import { number, percent } from "../words/count";
import { seconds } from "../words/time";
import { calls, type ScoresQuery, scoresPath } from "./calls";
import type { Score, Scores } from "./types";

const DAY = 86_400_000;
const TIMES = [
  ["allTime", 0],
  ["last24Hours", 1],
  ["last7Days", 7],
  ["last30Days", 30],
] as const;

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
          {t().category}
          <input
            type="text"
            placeholder={t().allCategories}
            value={kind}
            onInput={(event) => setKind(event.currentTarget.value)}
          />
        </label>
        <label>
          {t().time}
          <select value={days} onChange={(event) => setDays(Number(event.currentTarget.value))}>
            {TIMES.map(([label, value]) => (
              <option key={value} value={value}>
                {t()[label]}
              </option>
            ))}
          </select>
        </label>
        <span class="space" />
        <button type="button" class="small" onClick={() => saveFrom(scoresPath(query, "csv"), "scores.csv")}>
          <Icon node={Download} size={14} /> {t().leaderboardCsv}
        </button>
        <button type="button" class="small" onClick={() => saveFrom(scoresPath(query, "csv", "export"), "votes.csv")}>
          <Icon node={Download} size={14} /> {t().votesCsv}
        </button>
      </div>
      {problem && (
        <Empty title={t().leaderboardFailed} text={problem}>
          <button type="button" onClick={load}>
            {t().tryAgain}
          </button>
        </Empty>
      )}
      {!problem && !scores && <output class="loading" aria-label={t().loading} />}
      {!problem && scores && <Table scores={scores} />}
    </div>
  );
}

function Table({ scores: { models, counted } }: { scores: Scores }) {
  if (!models.length) {
    return (
      <Empty title={t().noVotes} text={t().noVotesMore}>
        <a class="button" href="/compare">
          {t().compare}
        </a>
      </Empty>
    );
  }
  const ranked = [...models].sort((one, other) => (other.rating ?? -Infinity) - (one.rating ?? -Infinity));
  const scale = scaleOf(models);
  return (
    <>
      <div class="table-place" tabIndex={0} role="region" aria-label={t().leaderboard}>
        <table>
          <thead>
            <tr>
              <th scope="col">{t().model}</th>
              <th scope="col">{t().rating}</th>
              <th scope="col">{t().winRate}</th>
              <th scope="col" title={t().winsLossesTiesHint}>
                {t().winsLossesTies}
              </th>
              <th scope="col">{t().responses}</th>
              <th scope="col">{t().firstTokenTitle}</th>
              <th scope="col">{t().speedTitle}</th>
              <th scope="col">{t().tokensTitle}</th>
              <th scope="col">{t().costTitle}</th>
            </tr>
          </thead>
          <tbody>
            {ranked.map((score) => (
              <Row key={score.model} score={score} scale={scale} />
            ))}
          </tbody>
        </table>
      </div>
      <p class="note">{t().ratingsFrom(counted.blind_votes, counted.other_votes)}</p>
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
      <td>{score.win_rate === null ? "–" : percent(score.win_rate)}</td>
      <td title={score.all_bad ? t().timesAllBad(score.all_bad) : undefined}>
        {score.wins} / {score.losses} / {score.ties}
      </td>
      <td>
        <Outcomes score={score} />
      </td>
      <td>{score.ttft_ms_p50 === null ? "–" : seconds(score.ttft_ms_p50)}</td>
      <td>{score.tokens_per_second_p50 === null ? "–" : number(score.tokens_per_second_p50)}</td>
      <td>{number(score.output_tokens)}</td>
      <td>{score.cost === null ? "–" : money(score.cost)}</td>
    </tr>
  );
}

function Rating({ score: { rating, low, high }, scale: [from, to] }: { score: Score; scale: [number, number] }) {
  if (rating === null) return <span class="note">{t().notRated}</span>;
  const x = (value: number | null) => (((value ?? rating) - from) / (to - from)) * 100;
  return (
    <span class="rating">
      <strong>{Math.round(rating)}</strong>
      <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <rect class="interval" x={x(low)} y="3.5" width={Math.max(0.5, x(high) - x(low))} height="3" rx="1" />
        <rect class="point" x={x(rating) - 0.8} y="1" width="1.6" height="8" />
      </svg>
      <small>{t().fromTo(bare(low ?? rating), bare(high ?? rating))}</small>
    </span>
  );
}

/** A rating has no separators: it is a mark on a scale, not an amount. */
const bare = (rating: number): string => String(Math.round(rating));

function scaleOf(models: Score[]): [number, number] {
  const lows = models.flatMap(({ low }) => (low === null ? [] : [low]));
  const highs = models.flatMap(({ high }) => (high === null ? [] : [high]));
  const [from, to] = [Math.min(900, ...lows), Math.max(1100, ...highs)];
  return [from - 10, to + 10];
}

const OUTCOMES = ["completed", "truncated", "stopped", "interrupted", "failed"] as const;

/** How the answers ended: green is not enough to tell it, so the words are there too. */
function Outcomes({ score }: { score: Score }) {
  const told = OUTCOMES.filter((outcome) => score[outcome]).map(
    (outcome) => `${number(score[outcome])} ${t().outcomes[outcome]}`,
  );
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
