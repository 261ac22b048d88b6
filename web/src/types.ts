/** The protocol's own shapes, as PROTOCOL.md gives them. */

export type Outcome = "completed" | "truncated" | "stopped" | "failed" | "interrupted";

export interface ErrorInfo {
  message: string;
  type: string;
  code: string;
  param: string | null;
}

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
  source: "provider" | "estimated";
}

export interface Settlement {
  outcome: Outcome;
  by: "user" | "disconnect" | "replaced" | "budget" | "shutdown" | null;
  finish_reason: string | null;
  partial: boolean;
  text: string;
  error: ErrorInfo | null;
  usage: Usage;
  receipt: { stop_requested_at: string; upstream_closed_at: string | null; settled_at: string } | null;
  answered_by: string | null;
}

export interface Run {
  id: string;
  session_id: string | null;
  message_id: string | null;
  parent_id: string | null;
  model: string;
  kind: string;
  lifetime: "detached" | "attached";
  status: "queued" | "running" | "settled";
  seq: number;
  text: string;
  created_at: string;
  started_at: string | null;
  settled_at: string | null;
  settlement: Settlement | null;
}

export type Part =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string } }
  | { type: string; [field: string]: unknown };

export type Content = string | Part[];

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

/** One tool call of an agent, with what came of it. */
export interface StepCall extends ToolCall {
  output: string | null;
  is_error: boolean;
  seconds: number | null;
  decision: "allow" | "deny" | null;
}

/** What an agent said, what it called, and what a person put in afterwards. */
export interface Step {
  text: string;
  tool_calls: StepCall[];
  inputs: string[];
}

/** What an answer took, as the server measured it. */
export interface Figures {
  input_tokens: number;
  output_tokens: number;
  usage_source: "provider" | "estimated";
  ttft_ms: number | null;
  duration_ms: number | null;
  tokens_per_second: number | null;
  cost: number | null;
}

export interface Message {
  id: string;
  role: "system" | "user" | "assistant" | "tool";
  content: Content | null;
  run_id: string | null;
  model: string | null;
  partial: boolean;
  outcome: Outcome | null;
  reasoning: string | null;
  parent_id: string | null;
  created_at: string;
  siblings?: string[];
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  steps?: Step[];
  figures?: Figures;
}

export interface Session {
  id: string;
  title: string;
  model: string | null;
  system: string | null;
  params: Record<string, unknown>;
  pinned: boolean;
  head_id: string | null;
  created_at: string;
  updated_at: string;
}

export interface ListedSession extends Session {
  active_run: string | null;
}

export interface Queued {
  n: number;
  run_id: string;
  input: Content;
  model: string;
  created_at: string;
}

export interface OpenSession extends Session {
  messages: Message[];
  active_run: Run | null;
  queued: Queued[];
  /** The cursor of the feed that this view goes up to. */
  feed: string;
}

export interface Model {
  id: string;
  provider: string;
  name: string;
}

export interface Models {
  models: Model[];
  default: string | null;
  providers: { name: string; ok: boolean; models: string[] }[];
}

/** One event of a run, or one entry of a session's feed. */
export interface FeedEvent {
  type: string;
  /** The number of an entry; run events have `run` and `seq` instead. */
  n?: number;
  run?: string;
  seq?: number;
  // biome-ignore lint/suspicious/noExplicitAny: each type has its own fields, and unknown ones are ignored
  [field: string]: any;
}
