/** A native modal dialog: the browser keeps the focus inside. It begins in the first field, and goes back at the end. */

import { X } from "lucide";
import type { ComponentChildren, TargetedMouseEvent } from "preact";
import { useEffect, useId } from "preact/hooks";
import { t } from "../words";
import { useElement } from "./element";
import { Icon } from "./icon";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  class?: string;
  isRequired?: boolean;
}

export function Dialog({ title, onClose, children, class: name = "", isRequired = false }: DialogProps) {
  const dialog = useElement<HTMLDialogElement>();
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    if (!matchMedia("(pointer: coarse)").matches) firstField(dialog.current)?.focus();
    return () => focusAgain(before);
  }, []);
  const onBackdrop = ({ target, currentTarget }: TargetedMouseEvent<HTMLDialogElement>) => {
    if (target === currentTarget && !isRequired) currentTarget.close();
  };
  return (
    <dialog
      ref={dialog}
      class={name}
      aria-labelledby={id}
      onClose={onClose}
      onClick={onBackdrop}
      onCancel={(event) => isRequired && event.preventDefault()}
    >
      <header>
        <h2 id={id}>{title}</h2>
        {!isRequired && (
          <button type="button" class="quiet icon-button" aria-label={t().close} onClick={() => dialog.current.close()}>
            <Icon node={X} />
          </button>
        )}
      </header>
      {children}
    </dialog>
  );
}

/** On a touch screen a field that has the focus covers half of the dialog with a keyboard. */
function firstField(dialog: HTMLDialogElement): HTMLElement | null {
  if (dialog.contains(document.activeElement?.closest("[autofocus], [role=combobox]") ?? null)) return null;
  return dialog.querySelector<HTMLElement>("input:not([hidden], [type=file]), textarea, select");
}

/** Give the focus back if the dialog went without being closed, or what it was opened with has gone. */
function focusAgain(before: Element | null): void {
  if (document.activeElement !== document.body) return;
  const to = before?.isConnected && before !== document.body ? before : document.getElementById("main");
  (to as HTMLElement | null)?.focus();
}
