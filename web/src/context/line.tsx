/** The quiet line where a summary takes the place of what is above it. Everything stays readable. */

import { Undo2 } from "lucide";
import type { Conversation } from "../state/conversation";
import type { Message } from "../types";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { undoCompaction } from "./state";

interface LineProps {
  message: Message;
  next: Message | null;
  transcript: Conversation;
}

export function CompactionLine({ message, next, transcript }: LineProps) {
  const isRunning = transcript.isRunning.value;
  const isWhole = next?.role === "assistant" && (!next.partial || next.edited);
  const isOurs = transcript.live.value?.parentId === message.id;
  return (
    <p class="compaction" data-message={message.id}>
      <span>{isOurs ? t().compacting : isWhole ? t().compactedAbove : t().notCompacted}</span>
      {transcript.mayWrite.value && !isRunning && (
        <button type="button" class="small quiet" onClick={() => undoCompaction(message.id)}>
          <Icon node={Undo2} size={14} /> {t().undo}
        </button>
      )}
    </p>
  );
}
