/** Answers again with another model. */
import { Shuffle } from "lucide";
import { useState } from "preact/hooks";
import { regenerate } from "../state/current";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { ModelDialog } from "./model-dialog";

interface OtherModelProps {
  messageId: string;
  /** A small button among others, without words. */
  isIcon?: boolean;
  isDisabled?: boolean;
}

export function OtherModel({ messageId, isIcon = false, isDisabled = false }: OtherModelProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      {isIcon ? (
        <button
          type="button"
          class="quiet icon-button"
          title={t().regenerateWith}
          aria-label={t().regenerateWith}
          disabled={isDisabled}
          onClick={() => setOpen(true)}
        >
          <Icon node={Shuffle} size={16} />
        </button>
      ) : (
        <button type="button" onClick={() => setOpen(true)}>
          <Icon node={Shuffle} size={14} /> {t().tryAnotherModel}
        </button>
      )}
      {isOpen && (
        <ModelDialog
          chosen={null}
          onChoose={(model) => regenerate(messageId, model)}
          onClose={() => setOpen(false)}
          title={t().regenerateWith}
        />
      )}
    </>
  );
}
