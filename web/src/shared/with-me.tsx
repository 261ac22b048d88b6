/** The chats that others share with this person, below the person's own. */
import { useEffect, useState } from "preact/hooks";
import { place } from "../router";
import { isSidebarOpen } from "../state/preferences";
import type { SharedList } from "../types";
import { t } from "../words";
import { s } from "../words/sharing";
import { shares } from "./calls";

const AGAIN = 60_000;

export default function WithMe() {
  const [list, setList] = useState<SharedList[]>([]);
  useEffect(() => {
    const load = () =>
      shares.withMe().then(
        ({ sessions }) => setList(sessions),
        () => {},
      ); // the page tells if the server is away
    load();
    const timer = setInterval(load, AGAIN);
    addEventListener("focus", load);
    return () => {
      clearInterval(timer);
      removeEventListener("focus", load);
    };
  }, []);
  if (!list.length) return null;
  return (
    <section aria-label={s().withMe}>
      <h2>{s().withMe}</h2>
      <ul>
        {list.map(({ id, title, shared }) => (
          <li key={id} class={`session ${place.value.id === id ? "is-current" : ""}`}>
            <a
              href={`/s/${id}`}
              aria-current={place.value.id === id ? "page" : undefined}
              onClick={() => {
                isSidebarOpen.value = false;
              }}
            >
              <span class="title" dir="auto">
                {title || t().untitled}
              </span>
              <span class="excerpt" dir="auto">
                {s().by(shared.owner)}
              </span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}
