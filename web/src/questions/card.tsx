/** One question, drawn by its kind. It is loaded with the first one. */
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

export default function Card({ asked, runId, isTemporary }: CardProps) {
  switch (asked.type) {
    case "approval.requested":
      return <ApprovalCard approval={asked} runId={runId} isTemporary={isTemporary} />;
    case "outcome.requested":
      return <OutcomeCard outcome={asked} runId={runId} />;
    case "input.requested":
      return <InputCard input={asked} runId={runId} />;
  }
}
