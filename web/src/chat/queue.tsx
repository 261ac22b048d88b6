/** Messages that wait for their turn: to be seen, changed, and taken back. */
import { ArrowUp, ChevronUp, Pencil, Square, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { attachedOf, givenBack, namesOf } from "../files/attached";
import type { Conversation } from "../state/conversation";
import { act } from "../state/current";
import { giveBack, placeOfEdit, readDraft } from "../state/drafts";
import type { Queued } from "../types";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { textOf } from "./content";
import { EditQueued } from "./edit-queued";

export default function Queue({ transcript }: { transcript: Conversation }) {
  const queued = transcript.queued.value;
  return (
    <section class="queue" aria-label={t().queuedMessages}>
      <header>
        <h2>{t().queuedCount(queued.length)}</h2>
        <button type="button" class="small quiet" title={t().stopQueueHint} onClick={stopAll}>
          <Icon node={Square} size={14} /> {t().stopAll}
        </button>
      </header>
      <ol>
        {queued.map((item, index) => (
          <QueuedLine key={item.run_id} item={item} place={index + 1} transcript={transcript} />
        ))}
      </ol>
    </section>
  );
}

/** Stop, and put what waited back into the message box: it was written to be read. */
const stopAll = () =>
  act(async (it) => {
    const waiting = it.queued.value;
    await it.stopAll();
    giveBack(
      it.id,
      waiting
        .map(({ input }) => textOf(input))
        .join("\n\n")
        .trim(),
      waiting.flatMap(({ input }) => givenBack(attachedOf(input))),
    );
  });

interface LineProps {
  item: Queued;
  /** Its place among those that wait, from 1 on. */
  place: number;
  transcript: Conversation;
}

function QueuedLine({ item, place, transcript }: LineProps) {
  const line = useElement<HTMLLIElement>();
  const [isEditing, setEditing] = useState(() => readDraft(placeOfEdit(transcript.id, item.run_id)) !== "");
  const text = textOf(item.input);
  const moveUp = async () => {
    await act(() => transcript.moveQueued(item.run_id, place - 1));
    line.current.querySelector("button")?.focus(); // it has changed its place, and lost the focus by that
  };
  if (isEditing) return <EditQueued item={item} transcript={transcript} onClose={() => setEditing(false)} />;
  return (
    <li ref={line}>
      <span dir="auto">{text || namesOf(item.input) || t().image}</span>
      <button
        type="button"
        class="quiet icon-button"
        aria-label={t().sendQueued}
        title={t().interruptHint}
        onClick={() => act(() => transcript.sendQueued(item.run_id))}
      >
        <Icon node={ArrowUp} size={16} />
      </button>
      {place > 1 && (
        <button
          type="button"
          class="quiet icon-button"
          aria-label={t().moveQueued}
          title={t().moveQueued}
          onClick={moveUp}
        >
          <Icon node={ChevronUp} size={16} />
        </button>
      )}
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
        onClick={() => act(() => transcript.dropQueued(item.run_id))}
      >
        <Icon node={Trash2} size={16} />
      </button>
    </li>
  );
}
