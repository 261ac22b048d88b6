/** Answers again with another model. */
import { Shuffle } from "lucide";
import { useState } from "preact/hooks";
import { regenerate } from "../state/current";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { ModelDialog } from "./model-picker";

export function OtherModel({ messageId }: { messageId: string }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        <Icon node={Shuffle} size={14} /> {t().otherModel}
      </button>
      {isOpen && (
        <ModelDialog
          chosen={null}
          onChoose={(model) => regenerate(messageId, model)}
          onClose={() => setOpen(false)}
          title={t().answerAgainWith}
        />
      )}
    </>
  );
}
