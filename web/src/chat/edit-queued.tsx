/** A message that waits for its turn, open to a change. */
import { useEffect } from "preact/hooks";
import { attachedOf } from "../files/attached";
import type { Conversation } from "../state/conversation";
import { act } from "../state/current";
import { giveBack, placeOfEdit, readDraft } from "../state/drafts";
import type { Queued } from "../types";
import { t } from "../words";
import { contentOf, textOf } from "./content";
import { isEnter, useEdit } from "./draft-area";

interface EditQueuedProps {
  item: Queued;
  transcript: Conversation;
  onClose: () => void;
}

export function EditQueued({ item, transcript, onClose }: EditQueuedProps) {
  const text = textOf(item.input);
  const edit = useEdit(transcript.id, item.run_id, text);
  useEffect(
    () => () => {
      const typed = readDraft(placeOfEdit(transcript.id, item.run_id)).trim();
      if (transcript.queued.value.some(({ run_id }) => run_id === item.run_id)) return;
      edit.forget(); // it waits no more: its turn has come, or it was removed elsewhere
      if (typed && typed !== text) giveBack(transcript.id, typed, []);
    },
    [],
  );
  const cancel = () => {
    edit.forget();
    onClose();
  };
  const save = () => {
    const changed = edit.read().trim();
    if (!changed || changed === text) return cancel();
    act(async () => {
      await transcript.changeQueued(item.run_id, contentOf(changed, attachedOf(item.input)));
      edit.forget();
      onClose();
    });
  };
  return (
    <li class="is-edited">
      {edit.area({ label: t().queuedMessage, rows: 1, isToSave: isEnter, onSave: save, onLeave: cancel })}
      <button type="button" class="small" onClick={cancel}>
        {t().cancel}
      </button>
      <button type="button" class="small primary" onClick={save}>
        {t().save}
      </button>
    </li>
  );
}
