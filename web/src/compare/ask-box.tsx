/** The box for a prompt that all panes get. */
import { ArrowUp, Square } from "lucide";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { growWithText } from "../chat/grow";
import { keepDraft, readDraft } from "../state/drafts";
import { Icon } from "../ui/icon";

interface AskBoxProps {
  label: string;
  placeholder: string;
  canSend: boolean;
  onSend: (text: string) => Promise<boolean>;
  /** Given while panes run: the button stops them. */
  onStop?: (() => void) | undefined;
  children?: ComponentChildren;
}

const DRAFT = "compare";

export function AskBox({ label, placeholder, canSend, onSend, onStop, children }: AskBoxProps) {
  const [text, setText] = useState(readDraft(DRAFT));
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => growWithText(box.current!), [text]);
  useEffect(() => {
    if (!matchMedia("(pointer: coarse)").matches) box.current!.focus();
  }, []);
  const write = (value: string) => {
    setText(value);
    keepDraft(DRAFT, value);
  };
  const send = async () => {
    if (!canSend || !text.trim()) return;
    const said = text;
    write("");
    if (!(await onSend(said.trim()))) write(said); // what was not taken is not lost
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
        <textarea
          id="composer"
          ref={box}
          dir="auto"
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
        />
        <div class="tools-line">
          {children}
          <span class="space" />
          {onStop ? (
            <button type="button" class="round stop" aria-label="Stop all" title="Stop all (Esc)" onClick={onStop}>
              <Icon node={Square} size={14} />
            </button>
          ) : (
            <button
              type="submit"
              class="round primary"
              aria-label="Send to all"
              title="Send to all"
              disabled={!canSend || !text.trim()}
            >
              <Icon node={ArrowUp} />
            </button>
          )}
        </div>
      </div>
    </form>
  );
}
