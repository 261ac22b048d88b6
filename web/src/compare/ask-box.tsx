/** The box for a prompt that all panes get. */

import { ArrowUp, Square } from "lucide";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { contentOf } from "../chat/content";
import { growWithText } from "../chat/grow";
import { useAttaching } from "../files/attaching";
import { AddFile, Attachments } from "../files/attachments";
import { keepDraft, readDraft } from "../state/drafts";
import type { Content } from "../types";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { t } from "../words";

interface AskBoxProps {
  label: string;
  placeholder: string;
  canSend: boolean;
  onSend: (prompt: Content) => Promise<boolean>;
  /** Given while panes run: the button stops them. */
  onStop?: (() => void) | undefined;
  children?: ComponentChildren;
}

const DRAFT = "compare";

export function AskBox({ label, placeholder, canSend, onSend, onStop, children }: AskBoxProps) {
  const [text, setText] = useState(readDraft(DRAFT));
  const attaching = useAttaching(() => false); // its prompts have their files within them
  const hasSomething = text.trim() !== "" || attaching.all.length > 0 || attaching.coming.length > 0;
  const box = useElement<HTMLTextAreaElement>();
  useEffect(() => growWithText(box.current), [text]);
  useLayoutEffect(() => {
    if (!matchMedia("(pointer: coarse)").matches) box.current.focus();
  }, []);
  const write = (value: string) => {
    setText(value);
    keepDraft(DRAFT, value);
  };
  const send = async () => {
    if (!canSend || !hasSomething) return;
    const said = text;
    write("");
    const shown = await attaching.whole();
    if (shown && !said.trim() && !shown.length) return;
    if (
      shown &&
      (await onSend(
        contentOf(
          said.trim(),
          shown.map(({ part }) => part),
        ),
      ))
    )
      return;
    write(said); // what was not taken is not lost
    if (shown) attaching.set(shown);
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="box">
        <Attachments attaching={attaching} onText={(pasted) => write(text ? `${text}\n${pasted}` : pasted)} />
        <textarea
          id="composer"
          ref={box}
          dir={text ? "auto" : undefined} // empty, it goes as the page does
          rows={1}
          aria-label={label}
          placeholder={placeholder}
          value={text}
          onInput={(event) => write(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            send();
          }}
          onPaste={attaching.onPaste}
        />
        <div class="tools-line">
          <AddFile attaching={attaching} />
          {children}
          <span class="space" />
          {onStop ? (
            <button type="button" class="round stop" aria-label={t().stopAll} title={t().stopAllHint} onClick={onStop}>
              <Icon node={Square} size={14} />
            </button>
          ) : (
            <button
              type="submit"
              class="round primary"
              aria-label={t().sendToAll}
              title={t().sendToAll}
              disabled={!canSend || !hasSomething}
            >
              <Icon node={ArrowUp} />
            </button>
          )}
        </div>
      </div>
    </form>
  );
}
