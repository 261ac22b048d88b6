/** Tells a screen reader that an answer has begun, and how it ended: never each word of it. */
import { useEffect, useState } from "preact/hooks";
import type { Conversation } from "../state/conversation";
import { t } from "../words";
import { tellOutcome } from "./outcome";

export function Announcer({ transcript }: { transcript: Conversation }) {
  const [text, setText] = useState("");
  const live = transcript.live.value;
  const ended = transcript.ended.value;
  useEffect(() => {
    if (live) return setText(t().responseStarted);
    if (!ended) return;
    const told = tellOutcome(ended.settlement.outcome, ended.settlement);
    setText(told ? `${told.label}. ${told.detail}`.trim() : t().responseComplete);
  }, [live, ended]);
  return (
    <div class="sr-only" role="status" aria-live="polite">
      {text}
    </div>
  );
}
