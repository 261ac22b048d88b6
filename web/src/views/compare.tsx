/** Compare: one prompt, several models, side by side; and what the votes say. */
import { ChartColumn, Plus } from "lucide";
import { useEffect } from "preact/hooks";
import { Board } from "../compare/board";
import { ScoresPage } from "../compare/scores";
import { Start } from "../compare/start";
import { newComparison, open, openComparison } from "../compare/state";
import "../styles/views.css";
import "../styles/compare.css";
import { Empty } from "../ui/empty";
import { Icon } from "../ui/icon";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { t } from "../words";

export default function Compare({ id }: { id: string | null }) {
  const title = id === "scores" ? t().leaderboard : t().compare;
  usePageTitle(title);
  useEffect(() => {
    if (id !== "scores") openComparison(id);
  }, [id]);
  return (
    <div class="compare">
      <ViewHeader title={title}>
        <button type="button" class="quiet small" onClick={newComparison}>
          <Icon node={Plus} size={16} />
          <span class="wide-only">{t().newComparison}</span>
          <span class="narrow-only">{t().new}</span>
        </button>
        {id !== "scores" && (
          <a class="button quiet small" href="/compare/scores">
            <Icon node={ChartColumn} size={16} /> {t().leaderboard}
          </a>
        )}
      </ViewHeader>
      {id === "scores" ? <ScoresPage /> : <Opened />}
    </div>
  );
}

function Opened() {
  const comparison = open.value;
  if (!comparison) return <output class="loading" aria-label={t().loading} />;
  if (comparison.info.value) return <Board comparison={comparison} info={comparison.info.value} />;
  if (comparison.id === null) return <Start comparison={comparison} />;
  if (!comparison.problem.value) return <output class="loading" aria-label={t().loading} />;
  return (
    <Empty title={t().comparisonFailed} text={comparison.problem.value}>
      <button type="button" onClick={() => comparison.load()}>
        {t().tryAgain}
      </button>
    </Empty>
  );
}
