/** A native modal dialog: the browser keeps the focus inside and gives it back. */

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
    dialog.current.showModal();
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
