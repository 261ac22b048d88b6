/** The calls of schedules and triggers, as docs/protocol/38-schedules.md and 39-triggers.md give them. */
import { call } from "../api";
import type { Outcome } from "../types";

export type When =
  | { kind: "cron"; expression: string; time_zone: string }
  | { kind: "every"; seconds: number }
  | { kind: "once"; at: string; time_zone: string };

export type Missed = "skip" | "one" | "all";

interface Asked {
  name: string;
  prompt: string;
  model: string | null;
  kind: "chat" | "agent";
  preset: string | null;
  session: string | null;
}

export interface NewSchedule extends Asked {
  when: When;
  missed: Missed;
}

interface Refusal {
  code: string;
  message: string;
}

export interface Occurrence {
  at: string;
  how: "planned" | "missed" | "asked";
  state: "begun" | "started" | "refused" | "skipped";
  run: { id: string; status: "queued" | "running" | "settled" | "deleted"; outcome: Outcome | null } | null;
  session_id: string | null;
  error: Refusal | null;
  why: string | null;
  others: number;
}

export interface PlannedTime {
  at: string;
  local: string;
}

export interface Schedule extends NewSchedule {
  id: string;
  paused: boolean;
  next: PlannedTime | null;
  last: Occurrence | null;
}

export interface NewTrigger extends Asked {
  signed: boolean;
  paused: boolean;
}

export interface TriggerCall {
  at: string;
  run_id: string | null;
  error: Refusal | null;
}

export interface Trigger extends NewTrigger {
  id: string;
  path: string;
  last: TriggerCall | null;
}

export type TriggerWithSecret = Trigger & { secret: string };

const one = (id: string) => `/api/schedules/${id}`;
const trigger = (id: string) => `/api/triggers/${id}`;

export const scheduleCalls = {
  schedules: () => call<{ schedules: Schedule[] }>("GET", "/api/schedules"),
  add: (body: NewSchedule) => call<Schedule>("POST", "/api/schedules", { body }),
  change: (id: string, body: NewSchedule) => call<Schedule>("PUT", one(id), { body }),
  remove: (id: string) => call<void>("DELETE", one(id)),
  pause: (id: string) => call<Schedule>("POST", `${one(id)}/pause`),
  resume: (id: string) => call<Schedule>("POST", `${one(id)}/resume`),
  run: (id: string, key: string) => call<Occurrence>("POST", `${one(id)}/run`, { headers: { "idempotency-key": key } }),
  history: (id: string) => call<{ occurrences: Occurrence[] }>("GET", `${one(id)}/history`),
  preview: (when: When, signal: AbortSignal) =>
    call<{ times: PlannedTime[] }>("POST", "/api/schedule-preview", { body: { when }, signal }),
  triggers: () => call<{ triggers: Trigger[] }>("GET", "/api/triggers"),
  addTrigger: (body: NewTrigger) => call<TriggerWithSecret>("POST", "/api/triggers", { body }),
  changeTrigger: (id: string, body: NewTrigger) => call<Trigger>("PUT", trigger(id), { body }),
  rotateTrigger: (id: string) => call<TriggerWithSecret>("POST", `${trigger(id)}/rotate`),
  removeTrigger: (id: string) => call<void>("DELETE", trigger(id)),
};
