/** How full the window of the chat's model is, and the summary that makes room in it. */
import { effect, signal } from "@preact/signals";
import { ApiError, call } from "../api";
import type { Conversation } from "../state/conversation";
import { act, current } from "../state/current";
import { complain, toast } from "../state/toasts";
import type { Message, Run, Session } from "../types";
import { t } from "../words";

export interface Context {
  tokens: number;
  source: "provider" | "estimated";
  /** Tokens that the model can hold; null if nobody has said. */
  window: number | null;
  model: string;
}

export const context = signal<Context | null>(null);
/** From this share of the window on a chat is compacted before the next message, if that is chosen. */
const FULL = 0.85;
const KEPT = "holdfast.compact";
/** Whether that is done by itself. */
export const isAutomatic = signal(localStorage.getItem(KEPT) !== "off");

export function setAutomatic(is: boolean): void {
  isAutomatic.value = is;
  localStorage.setItem(KEPT, is ? "on" : "off");
}

/** Ask again whenever the chat, its model or its last message is another one. */
export function keepContext(): () => void {
  let newest = 0;
  return effect(() => {
    const mine = ++newest;
    const chat = current.value;
    const head = chat?.head.value?.id;
    chat?.session.value?.model;
    if (!chat || !head || chat.isTemporary || chat.isRunning.value) {
      if (!chat || !head) context.value = null;
      return;
    }
    call<Context>("GET", `/api/sessions/${chat.id}/context`).then(
      (found) => {
        if (mine === newest) context.value = found;
      },
      () => {
        context.value = null; // the model is gone, or the server is: there is nothing to say
      },
    );
  });
}

export function isFull(): boolean {
  const { tokens = 0, window = null } = context.value ?? {};
  return isAutomatic.value && window !== null && tokens >= FULL * window;
}

/** Summarise the chat, or the part of it up to a message. Whether a run does it now. */
export async function compact(chat: Conversation, upTo?: string): Promise<boolean> {
  try {
    await call<Run>("POST", `/api/sessions/${chat.id}/compact`, { body: upTo ? { message_id: upTo } : {} });
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.code === "nothing_to_compact") toast(t().nothingToCompact);
    else complain(error);
    return false;
  }
}

/** Make room, and send a message again that was too long for what was there. */
export async function compactAndSend(question: Message): Promise<void> {
  const chat = current.value;
  if (!chat || !question.parent_id || question.content === null) return;
  if (await compact(chat, question.parent_id)) await act((it) => it.ask(question.content ?? "", "queue"));
}

export const undoCompaction = (messageId: string) =>
  act((it) => call<Session>("POST", `/api/sessions/${it.id}/compact/undo`, { body: { message_id: messageId } }));
