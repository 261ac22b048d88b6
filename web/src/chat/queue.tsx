/** Messages that wait for their turn: to be seen, changed, and taken back. */
import { Pencil, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { api } from "../api";
import { act } from "../state/current";
import type { Transcript } from "../state/transcript";
import type { Queued } from "../types";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { contentOf, picturesOf, textOf } from "./content";

export function Queue({ transcript }: { transcript: Transcript }) {
  const queued = transcript.queued.value;
  if (!queued.length) return null;
  return (
    <section class="queue" aria-label={t().queuedMessages}>
      <h2>{t().queuedNext(queued.length)}</h2>
      <ol>
        {queued.map((item) => (
          <QueuedLine key={item.run_id} item={item} session={transcript.id} />
        ))}
      </ol>
    </section>
  );
}

function QueuedLine({ item, session }: { item: Queued; session: string }) {
  const [isEditing, setEditing] = useState(false);
  const text = textOf(item.input);
  const save = (value: string) => {
    setEditing(false);
    const changed = value.trim();
    if (changed && changed !== text)
      act(() => api.changeQueued(session, item.n, contentOf(changed, picturesOf(item.input))));
  };
  if (isEditing) {
    return (
      <li>
        <input
          aria-label={t().queuedMessage}
          dir="auto"
          defaultValue={text}
          ref={(input) => input?.focus()}
          onBlur={(event) => save(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") event.currentTarget.value = text;
            if (event.key !== "Enter" && event.key !== "Escape") return;
            event.preventDefault();
            event.currentTarget.blur();
          }}
        />
      </li>
    );
  }
  return (
    <li>
      <span dir="auto">{text || t().aPicture}</span>
      <button
        type="button"
        class="quiet icon-button"
        aria-label={t().editQueued}
        title={t().edit}
        onClick={() => setEditing(true)}
      >
        <Icon node={Pencil} size={16} />
      </button>
      <button
        type="button"
        class="quiet icon-button"
        aria-label={t().removeQueued}
        title={t().remove}
        onClick={() => act(() => api.dropQueued(session, item.n))}
      >
        <Icon node={Trash2} size={16} />
      </button>
    </li>
  );
}
