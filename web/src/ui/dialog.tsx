/**
 * A native modal dialog: the browser keeps the focus inside. It begins in the first field, and goes back at the end.
 *
 * It is open as long as it is on the page. `onClose` takes it off at once: the browser's own `close` event comes a frame
 * later, and whatever opens the dialog again before that would find it closed and still there.
 */

import { X } from "lucide";
import type { ComponentChildren, TargetedEvent, TargetedMouseEvent } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
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
  const focused = useRef<Element | null>(null);
  const id = useId();
  useLayoutEffect(() => {
    const element = dialog.current;
    const before = document.activeElement;
    element.showModal();
    if (!matchMedia("(pointer: coarse)").matches) firstField(element)?.focus();
    return () => {
      element.close();
      focusAgain(before);
    };
  }, []);
  /** Chromium closes it at the second Esc whatever `onCancel` says. One that was not taken off then is open again. */
  const onClosed = ({ currentTarget: element }: TargetedEvent<HTMLDialogElement>) => {
    if (!element.isConnected || element.open) return;
    element.showModal();
    (focused.current as HTMLElement | null)?.focus();
  };
  const onBackdrop = ({ target, currentTarget }: TargetedMouseEvent<HTMLDialogElement>) => {
    if (target === currentTarget && !isRequired) onClose();
  };
  const onCancel = (event: TargetedEvent<HTMLDialogElement>) => {
    if (event.target !== event.currentTarget) return; // a file was not chosen
    focused.current = document.activeElement;
    if (event.cancelable) event.preventDefault(); // `onClose` takes it off, or asks first
    if (!isRequired || !event.cancelable) onClose();
  };
  return (
    <dialog ref={dialog} class={name} aria-labelledby={id} onClick={onBackdrop} onCancel={onCancel} onClose={onClosed}>
      <header>
        <h2 id={id}>{title}</h2>
        {!isRequired && (
          <button type="button" class="quiet icon-button" aria-label={t().close} onClick={onClose}>
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

/** Give the focus to the view if the browser could not give it back: what had it has gone. */
function focusAgain(before: Element | null): void {
  if (document.activeElement !== document.body) return;
  const to = before?.isConnected && before !== document.body ? before : document.getElementById("main");
  (to as HTMLElement | null)?.focus();
}
