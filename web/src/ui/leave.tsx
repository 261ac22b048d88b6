/** A form asks before it forgets what was typed into it. To leave it once more, while it asks, is to go on with it. */
import { useState } from "preact/hooks";
import { t } from "../words";

export function useLeave(onClose: () => void) {
  const [isTyped, setTyped] = useState(false);
  const [isAsked, setAsked] = useState(false);
  return {
    onInput: () => setTyped(true),
    leave: () => (isTyped ? setAsked(!isAsked) : onClose()),
    question: isAsked && (
      <span class="asked" role="alert">
        {t().discardChanges}
        <button type="button" class="danger" onClick={onClose}>
          {t().discard}
        </button>
      </span>
    ),
  };
}
