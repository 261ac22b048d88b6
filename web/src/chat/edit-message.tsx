/** What a person has said, open to a second thought: it is sent as another version. */
import { signal } from "@preact/signals";
import { attachedOf } from "../files/attached";
import { AttachedFiles } from "../files/shown";
import type { Conversation } from "../state/conversation";
import { act } from "../state/current";
import type { Message } from "../types";
import { t } from "../words";
import { contentOf, textOf } from "./content";
import { isEnter, useEdit } from "./draft-area";

/** The message that is being edited. */
export const editing = signal<string | null>(null);

export function EditMessage({ message, transcript }: { message: Message; transcript: Conversation }) {
  const edit = useEdit(transcript.id, message.id, textOf(message.content));
  const close = () => {
    editing.value = null;
    document.getElementById("composer")?.focus();
  };
  const cancel = () => {
    edit.forget();
    close();
  };
  const save = () => {
    const text = edit.read().trim();
    const attached = attachedOf(message.content);
    if (!text && !attached.length) return;
    act(async (it) => {
      await it.edit(message.id, contentOf(text, attached));
      edit.forget();
    });
    close();
  };
  return (
    <article class="message user is-edited" aria-label={t().editingMessage}>
      <AttachedFiles content={message.content} session={transcript.id} />
      {edit.area({ label: t().yourMessage, isToSave: isEnter, onSave: save, onLeave: close })}
      <footer>
        <button type="button" onClick={cancel}>
          {t().cancel}
        </button>
        <button type="button" class="primary" onClick={save}>
          {t().send}
        </button>
      </footer>
    </article>
  );
}
