/** A dialog with a form: its fields, what went wrong with it, and the buttons to save it or to leave it. */

import type { ComponentChildren } from "preact";
import { t } from "../words";
import { useAttempt } from "./attempt";
import { Dialog } from "./dialog";
import { useLeave } from "./leave";
import { Problem } from "./problem";

interface FormDialogProps {
  title: string;
  /** What the button says, if not that it saves. */
  action?: string;
  onSave: (given: FormData) => Promise<unknown>;
  onClose: () => void;
  children: ComponentChildren;
}

export function FormDialog({ title, action, onSave, onClose, children }: FormDialogProps) {
  const trying = useAttempt();
  const { onInput, leave, question } = useLeave(onClose);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    event.stopPropagation(); // another form may be around it
    const given = new FormData(event.currentTarget as HTMLFormElement);
    trying.attempt(() => onSave(given));
  };
  return (
    <Dialog title={title} onClose={leave}>
      <form onSubmit={submit} onInput={onInput} autocomplete="off">
        {children}
        <Problem of={trying} />
        <footer>
          {question}
          <button type="button" onClick={onClose}>
            {t().cancel}
          </button>
          <button type="submit" class="primary" disabled={trying.isBusy}>
            {action ?? t().save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
