/** Messages that wait for their turn: to be seen, changed, and taken back. */
import { ArrowUp, ChevronUp, Pencil, Square, Trash2 } from "lucide";
import { useLayoutEffect, useState } from "preact/hooks";
import { attachedOf, namesOf } from "../files/attached";
import type { Conversation } from "../state/conversation";
import { act } from "../state/current";
import type { Queued } from "../types";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { contentOf, textOf } from "./content";
import { growWithText } from "./grow";

export function Queue({ transcript }: { transcript: Conversation }) {
  const queued = transcript.queued.value;
  if (!queued.length) return null;
  return (
    <section class="queue" aria-label={t().queuedMessages}>
      <header>
        <h2>{t().queuedCount(queued.length)}</h2>
        <button type="button" class="small quiet" title={t().stopQueueHint} onClick={() => act((it) => it.stopAll())}>
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

interface LineProps {
  item: Queued;
  /** Its place among those that wait, from 1 on. */
  place: number;
  transcript: Conversation;
}

function QueuedLine({ item, place, transcript }: LineProps) {
  const line = useElement<HTMLLIElement>();
  const [isEditing, setEditing] = useState(false);
  const text = textOf(item.input);
  const save = (value: string) => {
    setEditing(false);
    const changed = value.trim();
    if (changed && changed !== text)
      act(() => transcript.changeQueued(item.run_id, contentOf(changed, attachedOf(item.input))));
  };
  const moveUp = async () => {
    await act(() => transcript.moveQueued(item.run_id, place - 1));
    line.current.querySelector("button")?.focus(); // it has changed its place, and lost the focus by that
  };
  if (isEditing) return <EditQueued text={text} onSave={save} onCancel={() => setEditing(false)} />;
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

interface EditQueuedProps {
  text: string;
  onSave: (text: string) => void;
  onCancel: () => void;
}

function EditQueued({ text, onSave, onCancel }: EditQueuedProps) {
  const box = useElement<HTMLTextAreaElement>();
  useLayoutEffect(() => {
    growWithText(box.current);
    box.current.focus();
    box.current.setSelectionRange(-1, -1);
  }, []);
  return (
    <li class="is-edited">
      <textarea
        ref={box}
        rows={1}
        dir="auto"
        aria-label={t().queuedMessage}
        defaultValue={text}
        onInput={(event) => growWithText(event.currentTarget)}
        onKeyDown={(event) => {
          if (event.isComposing || event.shiftKey) return;
          if (event.key !== "Enter" && event.key !== "Escape") return;
          event.preventDefault();
          if (event.key === "Enter") onSave(event.currentTarget.value);
          else onCancel();
        }}
      />
      <button type="button" class="small" onClick={onCancel}>
        {t().cancel}
      </button>
      <button type="button" class="small primary" onClick={() => onSave(box.current.value)}>
        {t().save}
      </button>
    </li>
  );
}
