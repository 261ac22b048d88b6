/** An answer as a text that a person can change: saved as another version, or gone on with by a model. */
import { Play, Shuffle } from "lucide";
import { useLayoutEffect, useState } from "preact/hooks";
import { textOf } from "../chat/content";
import { growWithText } from "../chat/grow";
import { ModelDialog } from "../chat/model-dialog";
import { editing } from "../chat/user-message";
import { act } from "../state/current";
import type { Message } from "../types";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { v } from "../words/versions";
import { versions } from "./calls";

export default function AnswerEdit({ message, session }: { message: Message; session: string }) {
  const box = useElement<HTMLTextAreaElement>();
  const [isChoosing, setChoosing] = useState(false);
  const hasSteps = Boolean(message.steps?.length);
  useLayoutEffect(() => {
    growWithText(box.current);
    box.current.focus();
    box.current.setSelectionRange(-1, -1);
  }, []);
  const close = () => {
    editing.value = null;
    document.getElementById("composer")?.focus();
  };
  const save = () => {
    const text = box.current.value;
    if (text.trim())
      act(async (it) => {
        await versions.edit(session, message.id, text);
        close();
        await it.load();
      });
  };
  const goOn = (model?: string) => {
    const text = box.current.value;
    act(async () => {
      await versions.forkMessage(session, message.id, text, model);
      close();
    });
  };
  const text = hasSteps ? (message.steps?.at(-1)?.text ?? "") : textOf(message.content);
  return (
    <article class="message answer is-edited" aria-label={v().editingResponse}>
      <textarea
        ref={box}
        dir="auto"
        aria-label={v().responseText}
        defaultValue={text}
        onInput={(event) => growWithText(event.currentTarget)}
        onKeyDown={(event) => {
          if (event.key !== "Escape" && !(event.key === "Enter" && (event.ctrlKey || event.metaKey))) return;
          event.preventDefault();
          if (event.key === "Escape") close();
          else save();
        }}
      />
      <p class="note">{hasSteps ? v().editStepHint : v().editHint}</p>
      <footer>
        <button type="button" onClick={close}>
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
