/** The calls for other versions of messages, and for votes. */
import { call } from "../api";
import type { Message, Run, Session } from "../types";

export type Vote = "up" | "down";

export interface Thumb {
  message_id: string;
  vote: Vote;
  why: string;
}

const of = (session: string, message: string): string => `/api/sessions/${session}/messages/${message}`;

export const versions = {
  edit: (session: string, message: string, text: string) =>
    call<{ message: Message; previous_head_id: string | null }>("POST", `${of(session, message)}/edit`, {
      body: { text },
    }),
  remove: (session: string, message: string) =>
    call<{ session: Session; previous_head_id: string | null }>("DELETE", of(session, message)),
  forkMessage: (session: string, message: string, text: string, model?: string) =>
    call<Run>("POST", `${of(session, message)}/fork`, { body: { text, ...(model && { model }) } }),
  forkRun: (run: string, after: number) => call<Run>("POST", `/api/runs/${run}/fork`, { body: { after } }),
  vote: (session: string, message: string, vote: Vote, why = "") =>
    call<Thumb>("PUT", `${of(session, message)}/thumb`, { body: { vote, why } }),
  unvote: (session: string, message: string) => call<void>("DELETE", `${of(session, message)}/thumb`),
  thumbs: (session: string) => call<{ thumbs: Thumb[] }>("GET", `/api/thumbs?session_id=${session}`),
};
