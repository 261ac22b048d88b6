/** What a person said: shown as it was typed, and open to a second thought. */

import { Pencil } from "lucide";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { isAway } from "../api";
import { AttachedFiles } from "../files/shown";
import type { Conversation } from "../state/conversation";
import type { Content, Message } from "../types";
import { CopyButton } from "../ui/copy";
import { useDerived } from "../ui/derived";
import { Icon } from "../ui/icon";
import { MessageMenu } from "../versions/menu";
import { t } from "../words";
import { Branches } from "./branches";
import { textOf } from "./content";
import { EditMessage, editing } from "./edit-message";
import { found } from "./found";

export function UserMessage({ message, transcript }: { message: Message; transcript: Conversation }) {
  const isEdited = useDerived(() => editing.value === message.id, [message.id]);
  const author = useDerived(() => (transcript.hasAuthors.value ? message.author : undefined), [message.author]);
  if (isEdited) return <EditMessage message={message} transcript={transcript} />;
  const text = textOf(message.content);
  return (
    <article class="message user" data-message={message.id} aria-label={author ?? t().you}>
      {author && <p class="author">{author}</p>}
      <Said content={message.content} session={transcript.id} />
      <footer>
        <Branches message={message} transcript={transcript} />
        {transcript.mayWrite.value && (
          <button
            type="button"
            class="quiet icon-button"
            title={t().edit}
            aria-label={t().editMessage}
            onClick={() => {
              editing.value = message.id;
            }}
          >
            <Icon node={Pencil} size={16} />
          </button>
        )}
        <CopyButton text={text} label={t().copyMessage} />
        <MessageMenu message={message} parts={[message]} transcript={transcript} />
      </footer>
    </article>
  );
}

/** What a client other than this page told the model beforehand. */
export function Instructions({ message }: { message: Message }) {
  const text = textOf(message.content);
  return (
    <details class="reasoning" data-message={message.id}>
      <summary>{t().systemPrompt}</summary>
      <div class="as-written" dir="auto">
        {text}
      </div>
    </details>
  );
}

export function SendingMessage({ content }: { content: Content }) {
  return (
    <article class="message user is-sending" aria-label={t().youSending}>
      <Said content={content} session={null} />
      <p class="sending" role="status">
        {isAway.value ? t().waitingToSend : t().sending}
      </p>
    </article>
  );
}

interface ContentProps {
  content: Content | null;
  session: string | null;
}

function Said({ content, session }: ContentProps) {
  const text = textOf(content);
  return (
    <div class="bubble">
      <AttachedFiles content={content} session={session} />
      {text && <Text text={text} />}
    </div>
  );
}

/** Lines and characters of a message that are shown without being asked for. */
const [MOST_LINES, MOST_CHARACTERS] = [40, 4_000];

/** What was typed, or pasted: a long text is folded. */
function Text({ text }: { text: string }) {
  const [isOpen, setOpen] = useState(false);
  const isLong = text.length > MOST_CHARACTERS || text.split("\n", MOST_LINES + 1).length > MOST_LINES;
  const isFolded = isLong && !isOpen && found.value === null; // a search may have found what is folded
  const shown = isFolded ? text.split("\n", MOST_LINES).join("\n").slice(0, MOST_CHARACTERS) : text;
  return (
    <>
      <div class={`said ${isFolded ? "is-folded" : ""}`} dir="auto">
        {withCode(shown)}
      </div>
      {isLong && (
        <button type="button" class="link" aria-expanded={!isFolded} onClick={() => setOpen(!isOpen)}>
          {isFolded ? t().showAllOf(text.length) : t().showLess}
        </button>
      )}
    </>
  );
}

/** Fenced code in a fixed width; everything else, and the fences, as they were typed. */
function withCode(text: string): ComponentChildren {
  return text
    .split(/(^```[^\n]*\n[\s\S]*?^```[ \t]*$)/m)
    .map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part));
}
