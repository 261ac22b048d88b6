/** What else can be done with one message: one small button, and what is behind it comes when it is drawn. */
import { Ellipsis } from "lucide";
import { useState } from "preact/hooks";
import type { Conversation } from "../state/conversation";
import type { Message } from "../types";
import { Later } from "../ui/later";
import { Menu } from "../ui/menu";
import { t } from "../words";

const ITEMS = () => import("./items");
const WHY = () => import("./why");

interface MessageMenuProps {
  message: Message;
  /** The parts of a response that was continued, this one last. */
  parts: readonly Message[];
  transcript: Conversation;
}

export function MessageMenu({ message, parts, transcript }: MessageMenuProps) {
  const [isAsked, setAsked] = useState(false);
  if (!transcript.mayWrite.value || transcript.isTemporary) return null;
  return (
    <>
      <Menu label={t().moreActions} icon={Ellipsis}>
        <Later
          load={ITEMS}
          message={message}
          parts={parts}
          session={transcript.id}
          isBusy={transcript.isRunning}
          askWhy={() => setAsked(true)}
        />
      </Menu>
      {isAsked && <Later load={WHY} session={transcript.id} message={message.id} onClose={() => setAsked(false)} />}
    </>
  );
}
