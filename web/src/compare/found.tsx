/** The comparisons that the search has found, below the chats. Without either, says that there are none. */
import { useEffect, useState } from "preact/hooks";
import { place } from "../router";
import { isSidebarOpen } from "../state/preferences";
import { query } from "../state/sessions";
import type { ListedComparison } from "../types";
import { t } from "../words";
import { calls } from "./calls";

export default function Found({ isAlone }: { isAlone: boolean }) {
  const [list, setList] = useState<ListedComparison[] | null>(null);
  const sought = query.value;
  useEffect(() => {
    let isLatest = true;
    calls.search(sought).then(
      ({ data }) => isLatest && setList(data),
      () => isLatest && setList([]), // the page tells if the server is away
    );
    return () => {
      isLatest = false;
    };
  }, [sought]);
  if (!list?.length) return list && isAlone && <p class="hint">{t().noResults}</p>;
  return (
    <section aria-label={t().comparisons}>
      <h2>{t().comparisons}</h2>
      <ul>
        {list.map(({ id, prompt }) => (
          <li key={id} class={`session ${place.value.id === id ? "is-current" : ""}`}>
            <a
              href={`/compare/${id}`}
              aria-current={place.value.id === id ? "page" : undefined}
              onClick={() => {
                isSidebarOpen.value = false;
              }}
            >
              <span class="title" dir="auto">
                {prompt || t().image}
              </span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}
