/** The comparisons that were made before. */
import { Trash2 } from "lucide";
import { useEffect, useState } from "preact/hooks";
import { textOf } from "../chat/content";
import { complain, toast } from "../state/toasts";
import { Icon } from "../ui/icon";
import { calls } from "./calls";
import { type Comparison, isBlind } from "./types";

export function Earlier() {
  const [list, setList] = useState<Comparison[] | null>(null);
  const [hasMore, setMore] = useState(false);
  const [problem, setProblem] = useState("");
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
  const remove = async ({ id }: Comparison) => {
    try {
      await calls.remove(id);
      setList((known) => known?.filter((each) => each.id !== id) ?? null);
      toast("The comparison was deleted.");
    } catch (error) {
      complain(error);
    }
  };
  return (
    <section class="earlier" aria-label="Earlier comparisons">
      <h2>Earlier</h2>
      {problem && (
        <p class="note">
          {problem}{" "}
          <button type="button" class="link" onClick={() => load()}>
            Try again
          </button>
        </p>
      )}
      {!list && !problem && <output class="loading" aria-label="Loading" />}
      {list?.length === 0 && <p class="note">Your comparisons will be listed here.</p>}
      <ul>
        {list?.map((each) => (
          <li key={each.id}>
            <a href={`/compare/${each.id}`}>
              <span class="prompt" dir="auto">
                {textOf(each.prompt) || "A picture"}
              </span>
              <span class="about">
                <span>{told(each)}</span>
                <span>
                  {new Date(each.created_at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })}
                </span>
              </span>
            </a>
            <button
              type="button"
              class="quiet icon-button"
              aria-label="Delete"
              title="Delete"
              onClick={() => remove(each)}
            >
              <Icon node={Trash2} size={16} />
            </button>
          </li>
        ))}
      </ul>
      {hasMore && (
        <button type="button" class="link" onClick={() => load(list?.at(-1)?.id)}>
          Show more
        </button>
      )}
    </section>
  );
}

function told(comparison: Comparison): string {
  if (isBlind(comparison)) return `Blind, ${comparison.panes.length} panes, not voted yet`;
  const winner = comparison.vote?.winner;
  const names = comparison.panes.map(({ model }) => model).join(" · ");
  if (typeof winner === "number") return `${comparison.panes[winner]?.model} won · ${names}`;
  if (winner === "tie") return `A tie · ${names}`;
  return winner === "none" ? `None was good · ${names}` : names;
}
