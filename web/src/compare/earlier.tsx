/** The comparisons that were made before. */
import { Trash2 } from "lucide";
import { useEffect, useState } from "preact/hooks";
import { toast } from "../state/toasts";
import type { ListedComparison } from "../types";
import { Confirm } from "../ui/confirm";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { moment } from "../words/count";
import { calls } from "./calls";
import { isBlind } from "./types";

/** Milliseconds until a list that has running comparisons is loaded again. */
const LOOK_AGAIN = 3_000;

export function Earlier() {
  const [list, setList] = useState<ListedComparison[] | null>(null);
  const [hasMore, setMore] = useState(false);
  const [problem, setProblem] = useState("");
  const [leaving, setLeaving] = useState<ListedComparison | null>(null);
  const load = async (before = "") => {
    try {
      const page = await calls.list(before);
      setList((known) => [...(before ? (known ?? []) : []), ...page.data]);
      setMore(page.has_more);
      setProblem("");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  useEffect(() => {
    load();
  }, []);
  const isRunning = list?.some(({ status }) => status === "running");
  useEffect(() => {
    if (!isRunning) return;
    const timer = setTimeout(async () => {
      const fresh = await calls.list("").catch(() => ({ data: [] }));
      setList((known) => known?.map((each) => fresh.data.find(({ id }) => id === each.id) ?? each) ?? null);
    }, LOOK_AGAIN);
    return () => clearTimeout(timer);
  }, [list, isRunning]);
  const remove = async ({ id }: ListedComparison) => {
    await calls.remove(id);
    setList((known) => known?.filter((each) => each.id !== id) ?? null);
    toast(t().comparisonDeleted);
  };
  return (
    <section class="earlier" aria-label={t().earlierComparisons}>
      <h2>{t().history}</h2>
      {problem && (
        <p class="note">
          {problem}{" "}
          <button type="button" class="link" onClick={() => load()}>
            {t().tryAgain}
          </button>
        </p>
      )}
      {!list && !problem && <output class="loading" aria-label={t().loading} />}
      {list?.length === 0 && <p class="note">{t().noComparisons}</p>}
      <ul>
        {list?.map((each) => (
          <li key={each.id}>
            <a href={`/compare/${each.id}`}>
              <span class="prompt" dir="auto">
                {each.prompt || t().image}
              </span>
              <span class="about">
                <span>
                  {each.status === "running" && <strong>{t().toolStates.running} · </strong>}
                  {told(each)}
                </span>
                <span>{moment(each.created_at, "short")}</span>
              </span>
            </a>
            <button
              type="button"
              class="quiet icon-button"
              aria-label={t().delete}
              title={t().delete}
              onClick={() => setLeaving(each)}
            >
              <Icon node={Trash2} size={16} />
            </button>
          </li>
        ))}
      </ul>
      {hasMore && (
        <button type="button" class="link" onClick={() => load(list?.at(-1)?.id)}>
          {t().showMore}
        </button>
      )}
      {leaving && (
        <Confirm
          title={t().delete}
          action={t().delete}
          onConfirm={() => remove(leaving)}
          onClose={() => setLeaving(null)}
        >
          <p dir="auto">{leaving.prompt || t().image}</p>
        </Confirm>
      )}
    </section>
  );
}

function told(comparison: ListedComparison): string {
  if (isBlind(comparison)) return t().notVotedYet(comparison.panes.length);
  const winner = comparison.vote?.winner;
  const models = comparison.panes.map(({ model }) => model ?? "");
  const names = models.join(" · ");
  if (typeof winner === "number") return t().won(models[winner] ?? "", models.toSpliced(winner, 1).join(" · "));
  if (winner === "tie") return `${t().tie} · ${names}`;
  return winner === "none" ? `${t().allBad} · ${names}` : names;
}
