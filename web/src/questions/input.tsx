/** A form that a tool asks a person to fill in while it runs. */
import { MessageCircleQuestion } from "lucide";
import { useState } from "preact/hooks";
import { visible } from "../chat/whole-call";
import { keepDraft, readDraft } from "../state/drafts";
import type { InputRequestedEvent } from "../types";
import { Icon } from "../ui/icon";
import { filled } from "../words/filled";
import { q } from "../words/questions";
import { type FormDecision, fillIn, tell } from "./calls";
import { type Content, Field, type Filled, filledIn, startOf } from "./fields";

interface CardProps {
  input: InputRequestedEvent;
  runId: string;
  /** What is typed in a temporary chat is kept nowhere. */
  isTemporary: boolean;
}

export function InputCard({ input, runId, isTemporary }: CardProps) {
  const [isSent, setSent] = useState(false);
  const [given, setGiven] = useState<Filled>(() => ({ ...startOf(input.fields), ...draftOf(input.id) }));
  const keep = (now: Filled) => {
    setGiven(now);
    if (!isTemporary) keepDraft(input.id, JSON.stringify(now));
  };
  const decide = async (decision: FormDecision, content: Content = {}) => {
    setSent(true);
    if (await tell(fillIn(runId, input.id, { decision, content }))) keepDraft(input.id, "");
    setSent(false);
  };
  const message = visible(input.message);
  return (
    <div class="question input" role="alertdialog" aria-label={message} data-input={input.id}>
      <p>
        <Icon node={MessageCircleQuestion} size={16} />
        <span class="note">{filled(q().asks, <code>{visible(input.tool)}</code>)}</span>
      </p>
      <p class="asked" dir="auto">
        {message}
      </p>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          decide("accept", filledIn(input.fields, given));
        }}
      >
        {input.fields.map((field) => (
          <Field
            key={field.name}
            field={field}
            label={visible(field.title) || (field.options.length ? message : q().ownWords)}
            value={given[field.name]}
            onChange={(value) => keep({ ...given, [field.name]: value })}
          />
        ))}
        <footer>
          <button type="button" class="small" disabled={isSent} onClick={() => decide("cancel")}>
            {q().dismiss}
          </button>
          <button type="button" class="small" disabled={isSent} onClick={() => decide("decline")}>
            {q().decline}
          </button>
          <button type="submit" class="small primary" disabled={isSent}>
            {q().send}
          </button>
        </footer>
      </form>
    </div>
  );
}

const draftOf = (input: string): Filled => JSON.parse(readDraft(input) || "{}");
