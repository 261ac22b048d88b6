/** Goes from one wording, or one answer, to the next: all of them are kept. */
import { ChevronLeft, ChevronRight } from "lucide";
import type { Conversation } from "../state/conversation";
import { showBranch } from "../state/current";
import type { Message } from "../types";
import { Icon } from "../ui/icon";
import { t } from "../words";

export function Branches({ message, transcript }: { message: Message; transcript: Conversation }) {
  const siblings = message.siblings ?? [];
  if (siblings.length < 2) return null;
  const at = siblings.indexOf(message.id);
  const step = (by: number, label: string) => {
    const to = siblings[at + by];
    return (
      <button
        type="button"
        class="quiet icon-button"
        aria-label={label}
        disabled={!to || transcript.isRunning.value || transcript.shared.value !== null}
        onClick={() => to && showBranch(to)}
      >
        <Icon node={by < 0 ? ChevronLeft : ChevronRight} size={16} />
      </button>
    );
  };
  return (
    <span class="branches" role="group" aria-label={t().versions}>
      {step(-1, t().previousVersion)}
      <span>
        {at + 1}/{siblings.length}
      </span>
      {step(1, t().nextVersion)}
    </span>
  );
}
