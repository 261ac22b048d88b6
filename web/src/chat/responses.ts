/**
 * Messages as a reader sees them: a response that was continued is one, however many turns it took.
 *
 * A model that cannot continue its own message is asked to, in a turn that the server writes. That turn is no message of the
 * user, and is not shown.
 */
import type { Message } from "../types";
import { textOf } from "./content";

export interface Shown {
  /** The message, or the last part of a response. */
  message: Message;
  /** The parts of a response before that. */
  earlier: readonly Message[];
  /** The turn that asked the model to continue, if nothing has come of it yet. */
  asked: Message | null;
}

const NONE: readonly Message[] = [];

export function shownOf(messages: readonly Message[]): Shown[] {
  const shown: Shown[] = [];
  for (const message of messages) {
    const last = shown.at(-1);
    if (message.role === "tool") continue;
    if (last?.message.role === "assistant" && message.automatic && !message.compacts) {
      last.asked = message;
    } else if (last?.asked && message.role === "assistant") {
      last.earlier = [...last.earlier, last.message];
      last.message = message;
      last.asked = null;
    } else {
      shown.push({ message, earlier: NONE, asked: null });
    }
  }
  return shown;
}

/** The text of all parts: a part begins where the one before it ended. */
export function joinedText(parts: readonly Message[]): string {
  return parts.map(({ content }) => textOf(content)).join("");
}
