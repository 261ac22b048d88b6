/** An answer as a text that a person can change: saved as another version, or gone on with by a model. */
import { Play, Shuffle } from "lucide";
import { useState } from "preact/hooks";
import { textOf } from "../chat/content";
import { useEdit } from "../chat/draft-area";
import { editing } from "../chat/edit-message";
import { ModelDialog } from "../chat/model-dialog";
import { act } from "../state/current";
import type { Message } from "../types";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { v } from "../words/versions";
import { versions } from "./calls";

export default function AnswerEdit({ message, session }: { message: Message; session: string }) {
  const [isChoosing, setChoosing] = useState(false);
  const hasSteps = Boolean(message.steps?.length);
  const text = hasSteps ? (message.steps?.at(-1)?.text ?? "") : textOf(message.content);
  const edit = useEdit(session, message.id, text);
  const close = () => {
    editing.value = null;
    document.getElementById("composer")?.focus();
  };
  const cancel = () => {
    edit.forget();
    close();
  };
  const save = () => {
    const changed = edit.read();
    if (changed.trim())
      act(async (it) => {
        await versions.edit(session, message.id, changed);
        cancel();
        await it.load();
      });
  };
  const goOn = (model?: string) => {
    act(async () => {
      await versions.forkMessage(session, message.id, edit.read(), model);
      cancel();
    });
  };
  return (
    <article class="message answer is-edited" aria-label={v().editingResponse}>
      {edit.area({
        label: v().responseText,
        isToSave: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey),
        onSave: save,
        onLeave: close,
      })}
      <p class="note">{hasSteps ? v().editStepHint : v().editHint}</p>
      <footer>
        <button type="button" onClick={cancel}>
          {t().cancel}
        </button>
        {!hasSteps && !message.tool_calls?.length && (
          <>
            <button
              type="button"
              class="icon-button"
              title={v().continueWith}
              aria-label={v().continueWith}
              onClick={() => setChoosing(true)}
            >
              <Icon node={Shuffle} size={16} />
            </button>
            <button type="button" onClick={() => goOn()}>
              <Icon node={Play} size={14} /> {v().continueHere}
            </button>
          </>
        )}
        <button type="button" class="primary" onClick={save}>
          {v().save}
        </button>
      </footer>
      {isChoosing && (
        <ModelDialog
          chosen={message.model}
          onChoose={(model) => goOn(model)}
          onClose={() => setChoosing(false)}
          title={v().continueWith}
        />
      )}
    </article>
  );
}
