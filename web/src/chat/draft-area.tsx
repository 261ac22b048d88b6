/** A message that is being changed. What is typed stays in this browser until it was taken, or is cancelled. */
import type { VNode } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { keepDraft, placeOfEdit, readDraft } from "../state/drafts";
import { useElement } from "../ui/element";
import { growWithText } from "./grow";

interface Edit {
  /** What is typed now. */
  read: () => string;
  /** Forget what was typed: it was taken, or is not wanted. */
  forget: () => void;
  area: (props: AreaProps) => VNode;
}

interface AreaProps {
  label: string;
  isToSave: (event: KeyboardEvent) => boolean;
  onSave: () => void;
  /** What was typed stays for the next time. */
  onLeave: () => void;
  rows?: number;
}

/** Change the text of a message, or of one that waits in the queue. */
export function useEdit(session: string, id: string, text: string): Edit {
  const box = useElement<HTMLTextAreaElement>();
  const place = placeOfEdit(session, id);
  useLayoutEffect(() => {
    growWithText(box.current);
    box.current.focus();
    box.current.setSelectionRange(-1, -1);
  }, []);
  return {
    read: () => box.current.value,
    forget: () => keepDraft(place, ""),
    area: ({ label, isToSave, onSave, onLeave, rows }) => (
      <textarea
        ref={box}
        rows={rows}
        dir="auto"
        aria-label={label}
        defaultValue={readDraft(place) || text}
        onInput={({ currentTarget }) => {
          growWithText(currentTarget);
          keepDraft(place, currentTarget.value);
        }}
        onKeyDown={(event) => {
          if (event.isComposing) return;
          if (event.key !== "Escape" && !isToSave(event)) return;
          event.preventDefault();
          if (event.key === "Escape") onLeave();
          else onSave();
        }}
      />
    ),
  };
}

export const isEnter = (event: KeyboardEvent): boolean => event.key === "Enter" && !event.shiftKey;
