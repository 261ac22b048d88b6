/** What a server sends, in a few words. */
import type { Message, OpenSession, Run, RunEvent, RunFrame, Settlement } from "../src/types";

export const COMPLETED: Settlement = {
  outcome: "completed",
  by: null,
  finish_reason: "stop",
  partial: false,
  text: "",
  error: null,
  usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2, source: "provider" },
  receipt: null,
  answered_by: null,
  legs: [],
};

/** Events of a run, numbered from one on. */
export function numbered(events: RunEvent[], { run = "run_1", after = 0 } = {}): RunFrame[] {
  return events.map((event, index) => ({ ...event, run, seq: after + index + 1 }));
}

export const text = (words: string, choice = 0): RunEvent => ({ type: "text.delta", text: words, choice });

export function runOf(changes: Partial<Run> = {}): Run {
  return {
    id: "run_1",
    session_id: "s",
    comparison_id: null,
    message_id: "msg_2",
    parent_id: "msg_1",
    model: "up/m",
    kind: "chat",
    lifetime: "detached",
    status: "running",
    seq: 0,
    text: "",
    created_at: "2026-01-01T00:00:00.000Z",
    started_at: "2026-01-01T00:00:00.000Z",
    settled_at: null,
    settlement: null,
    cost: null,
    needs_approval: false,
    waits_for: null,
    ...changes,
  };
}

export function messageOf(id: string, role: Message["role"], content: string, changes: Partial<Message> = {}): Message {
  return {
    id,
    role,
    content,
    run_id: null,
    model: null,
    partial: false,
    outcome: role === "assistant" ? "completed" : null,
    reasoning: null,
    parent_id: null,
    created_at: "2026-01-01T00:00:00.000Z",
    ...changes,
  };
}

export function viewOf(changes: Partial<OpenSession> = {}): OpenSession {
  return {
    id: "s",
    title: "Waves",
    model: "up/m",
    system: null,
    params: {},
    preset: null,
    on_break: null,
    pinned: false,
    folder: "",
    tags: [],
    archived: false,
    head_id: null,
    created_at: "2026-01-01T00:00:00.000Z",
    updated_at: "2026-01-01T00:00:00.000Z",
    messages: [],
    active_run: null,
    queued: [],
    shared: null,
    feed: "0",
    ...changes,
  };
}
