/** One question, drawn by its kind. It is loaded with the first one. */
import type { TargetedMouseEvent } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { AskedEvent } from "../types";
import { ApprovalCard } from "./approval";
import { InputCard } from "./input";
import { OutcomeCard } from "./outcome";
import "../styles/questions.css";

interface CardProps {
  asked: AskedEvent;
  runId: string;
  /** There is no chat on the server for which a call could be allowed. */
  isTemporary: boolean;
}

/** A double click is one decision: the second click would hit the next question, which nobody has read. */
function onlyFirst(event: TargetedMouseEvent<HTMLDivElement>): void {
  if (event.detail < 2 || !(event.target as Element).closest("button")) return;
  event.preventDefault();
  event.stopPropagation();
}

/** The focus was on a button that has gone. */
function focusAgain(): void {
  if (document.activeElement !== document.body || matchMedia("(pointer: coarse)").matches) return;
  document.getElementById("composer")?.focus();
}

export default function Card(props: CardProps) {
  const isAnswered = useRef(false);
  useLayoutEffect(
    () => () => {
      if (isAnswered.current) requestAnimationFrame(focusAgain);
    },
    [],
  );
  const onClick = (event: TargetedMouseEvent<HTMLDivElement>) => {
    onlyFirst(event);
    isAnswered.current = true;
  };
  return (
    <div role="presentation" onClickCapture={onClick}>
      <Question {...props} />
    </div>
  );
}

function Question({ asked, runId, isTemporary }: CardProps) {
  switch (asked.type) {
    case "approval.requested":
      return <ApprovalCard approval={asked} runId={runId} isTemporary={isTemporary} />;
    case "outcome.requested":
      return <OutcomeCard outcome={asked} runId={runId} />;
    case "input.requested":
      return <InputCard input={asked} runId={runId} isTemporary={isTemporary} />;
  }
}
