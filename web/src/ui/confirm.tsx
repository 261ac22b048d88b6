/** Asks before something is done that cannot be undone. */
import type { ComponentChildren } from "preact";
import { t } from "../words";
import { useAttempt } from "./attempt";
import { Dialog } from "./dialog";
import { Problem } from "./problem";

interface ConfirmProps {
  title: string;
  /** What the button does, in a word. */
  action: string;
  /** Given the form, for what else is asked in it. */
  onConfirm: (form: HTMLFormElement) => Promise<unknown>;
  onClose: () => void;
  children?: ComponentChildren;
  isBad?: boolean;
  isNarrow?: boolean;
}

export function Confirm({ title, action, onConfirm, onClose, children, isBad = true, isNarrow = true }: ConfirmProps) {
  const trying = useAttempt();
  const { isBusy, attempt } = trying;
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    if (await attempt(() => onConfirm(form))) onClose();
  };
  return (
    <Dialog title={title} onClose={onClose} class={isNarrow ? "narrow" : ""}>
      <form onSubmit={submit}>
        {children}
        <Problem of={trying} />
        <footer>
          <button type="button" onClick={onClose}>
            {t().cancel}
          </button>
          <button type="submit" class={isBad ? "danger" : "primary"} disabled={isBusy}>
            {action}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
