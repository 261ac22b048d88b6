/**
 * The JSON of the native API. Written by scripts/web_types.py from the server's types, which say what each field means:
 * do not edit.
 */

export type Outcome = "completed" | "failed" | "interrupted" | "stopped" | "truncated";

export type Content = string | Part[];

export interface ErrorInfo {
  code: string;
  help: string | null;
  message: string;
  param: string | null;
  type: string;
}

export interface Usage {
  cache_write_tokens?: number;
  cached_tokens?: number;
  input_tokens: number;
  output_tokens: number;
  reasoning_tokens?: number;
  source: "estimated" | "provider";
  total_tokens: number;
}

export interface Receipt {
  refused?: string[];
  settled_at: string;
  stop_requested_at: string;
  upstream_closed_at: string | null;
}

export interface Leg {
  at: number;
  how: "anew" | "prefill" | "turn" | null;
  model: string;
  reason: string | null;
  usage: Usage;
}

export interface Settlement {
  answered_by: string | null;
  by: "budget" | "disconnect" | "replaced" | "revoked" | "shutdown" | "user" | null;
  error: ErrorInfo | null;
  finish_reason: string | null;
  legs: Leg[];
  outcome: "completed" | "failed" | "interrupted" | "stopped" | "truncated";
  partial: boolean;
  receipt: Receipt | null;
  text: string;
  usage: Usage;
}

export interface WaitsFor {
  model: string;
  since: string;
  what: "first_token" | "more" | "prompt";
}

export interface Run {
  comparison_id: string | null;
  cost: number | null;
  created_at: string;
  id: string;
  kind: string;
  lifetime: "attached" | "detached";
  message_id: string | null;
  model: string;
  needs_approval: boolean;
  parent_id: string | null;
  seq: number;
  session_id: string | null;
  settled_at: string | null;
  settlement: Settlement | null;
  started_at: string | null;
  status: "queued" | "running" | "settled";
  text: string;
  waits_for: WaitsFor | null;
}

export interface ListedRun {
  comparison_id: string | null;
  cost: number | null;
  created_at: string;
  id: string;
  kind: string;
  lifetime: "attached" | "detached";
  message_id: string | null;
  model: string;
  needs_approval: boolean;
  parent_id: string | null;
  question: string;
  seq: number;
  session_id: string | null;
  session_title: string | null;
  settled_at: string | null;
  settlement: Settlement | null;
  started_at: string | null;
  status: "queued" | "running" | "settled";
  text: string;
  waits_for: WaitsFor | null;
}

export interface ImageUrl {
  url: string;
}

export interface File {
  file_data?: string;
  filename?: string;
  read_as?: string;
}

export interface Part {
  file?: File;
  image_url?: ImageUrl;
  text?: string;
  type: string;
}

export interface MessageCall {
  arguments: string;
  id: string;
  kind?: "custom" | "function" | "function_call";
  name: string;
}

export interface StepCall {
  arguments: string;
  decision: "allow" | "deny" | null;
  edited: string | null;
  id: string;
  is_error: boolean;
  name: string;
  output: string | null;
  seconds: number | null;
  unfinished: boolean;
}

export interface Step {
  inputs: string[];
  text: string;
  tool_calls: StepCall[];
}

export interface Figures {
  cost: number | null;
  duration_ms: number | null;
  input_tokens: number;
  output_tokens: number;
  thought_ms: number | null;
  tokens_per_second: number | null;
  ttft_ms: number | null;
  usage_source: "estimated" | "provider";
}

export interface Message {
  author?: string;
  automatic?: boolean;
  compacts?: boolean;
  content: string | Part[] | null;
  created_at: string;
  edited?: boolean;
  figures?: Figures;
  id: string;
  legs?: Leg[];
  model: string | null;
  outcome: "completed" | "failed" | "interrupted" | "stopped" | "truncated" | null;
  parent_id: string | null;
  partial: boolean;
  reasoning: string | null;
  role: "assistant" | "developer" | "system" | "tool" | "user";
  run_id: string | null;
  siblings?: string[];
  steps?: Step[];
  tool_call_id?: string;
  tool_calls?: MessageCall[];
}

export interface SessionHead {
  archived: boolean;
  created_at: string;
  folder: string;
  head_id: string | null;
  id: string;
  model: string | null;
  pinned: boolean;
  tags: string[];
  title: string;
  updated_at: string;
}

export interface Session {
  archived: boolean;
  created_at: string;
  folder: string;
  head_id: string | null;
  id: string;
  model: string | null;
  on_break: "continue" | "settle" | null;
  params: Record<string, unknown>;
  pinned: boolean;
  preset: string | null;
  system: string | null;
  tags: string[];
  title: string;
  updated_at: string;
}

export interface Excerpt {
  match: boolean;
  text: string;
}

export interface SearchHit {
  excerpt: Excerpt[];
  message_id: string;
  offset: number;
}

export interface ListedSession {
  active_run: string | null;
  archived: boolean;
  created_at: string;
  folder: string;
  head_id: string | null;
  hit: SearchHit | null;
  id: string;
  model: string | null;
  needs_approval: boolean;
  pinned: boolean;
  tags: string[];
  title: string;
  unread: "completed" | "failed" | "interrupted" | "stopped" | "truncated" | null;
  updated_at: string;
}

export interface Queued {
  created_at: string;
  input: string | Part[] | null;
  model: string;
  n: number;
  run_id: string;
}

export interface Shared {
  may: "read" | "write";
  owner: string;
}

export interface OpenSession {
  active_run: Run | null;
  archived: boolean;
  created_at: string;
  feed: string;
  folder: string;
  head_id: string | null;
  id: string;
  messages: Message[];
  model: string | null;
  on_break: "continue" | "settle" | null;
  params: Record<string, unknown>;
  pinned: boolean;
  preset: string | null;
  queued: Queued[];
  shared: Shared | null;
  system: string | null;
  tags: string[];
  title: string;
  updated_at: string;
}

export interface SharedRun {
  message_id: string | null;
  model: string;
  started_at: string | null;
}

export interface SharedSession {
  active_run: SharedRun | null;
  cursor: string;
  expires_at: string | null;
  follows: boolean;
  messages: Message[];
  owner: string | null;
  system: string | null;
  title: string;
}

export interface SharedSettlement {
  outcome: "completed" | "failed" | "interrupted" | "stopped" | "truncated";
  partial: boolean;
  text: string;
}

export interface SharedSettled {
  seq: number;
  settlement: SharedSettlement;
  type: "run.settled";
}

export interface Share {
  created_at: string;
  expires_at: string | null;
  follows: boolean;
  group: string | null;
  group_name: string | null;
  id: string;
  include: ("names" | "reasoning" | "system" | "tools")[];
  may: "read" | "write";
  message_id: string | null;
  session_id: string;
  sign_in: boolean;
  title: string;
}

export interface NewLink {
  created_at: string;
  expires_at: string | null;
  follows: boolean;
  group: string | null;
  group_name: string | null;
  id: string;
  include: ("names" | "reasoning" | "system" | "tools")[];
  may: "read" | "write";
  message_id: string | null;
  session_id: string;
  sign_in: boolean;
  title: string;
  token: string | null;
}

export interface GroupName {
  id: string;
  name: string;
}

export interface SharedList {
  archived: boolean;
  created_at: string;
  folder: string;
  head_id: string | null;
  id: string;
  model: string | null;
  pinned: boolean;
  shared: Shared;
  tags: string[];
  title: string;
  updated_at: string;
}

export interface UsageEvent {
  cache_write_tokens?: number;
  cached_tokens?: number;
  input_tokens: number;
  output_tokens: number;
  reasoning_tokens?: number;
  source: "estimated" | "provider";
  total_tokens: number;
  type: "usage";
}

export interface SettledEvent {
  settlement: Settlement;
  type: "run.settled";
}

export interface MessageAdded {
  message: Message;
  n: number;
  type: "message.added";
}

export interface MessageChanged {
  message: Message;
  n: number;
  type: "message.changed";
}

export interface RunQueued {
  input: Message[];
  n: number;
  queue_number: number;
  run_id: string;
  type: "queue.changed" | "run.queued";
}

export interface RunBegan {
  message_id: string | null;
  model: string;
  n: number;
  parent_id: string | null;
  run_id: string;
  type: "run.started";
}

export interface RunEnded {
  message_id: string | null;
  n: number;
  outcome: "completed" | "failed" | "interrupted" | "stopped" | "truncated";
  run_id: string;
  settlement?: Settlement;
  type: "run.settled";
}

export interface SessionChanged {
  head_id?: string;
  model?: string | null;
  n: number;
  on_break?: "continue" | "settle" | null;
  params?: Record<string, unknown>;
  pinned?: boolean;
  preset?: string;
  system?: string | null;
  title?: string;
  titled?: string;
  type: "session.changed";
}

export interface SessionDeleted {
  session_id: string;
  type: "session.deleted";
}

export interface SessionListed {
  session: ListedSession;
  type: "session.listed";
}

export interface SessionsChanged {
  type: "sessions.changed";
}

export interface Metrics {
  cost: number | null;
  duration_ms: number | null;
  fastest: boolean;
  input_tokens: number | null;
  output_tokens: number | null;
  tokens_per_second: number | null;
  ttft_ms: number | null;
  usage_source: "estimated" | "provider" | null;
}

export interface EarlierAnswer {
  outcome: "completed" | "failed" | "interrupted" | "stopped" | "truncated" | null;
  text: string;
}

export interface PaneEnding {
  by: "budget" | "disconnect" | "replaced" | "revoked" | "shutdown" | "user" | null;
  error: ErrorInfo | null;
  finish_reason: string | null;
  outcome: "completed" | "failed" | "interrupted" | "stopped" | "truncated" | null;
}

export interface PaneHead {
  label: string;
  metrics: Metrics | null;
  model: string | null;
  pane: number;
  run_id: string | null;
  status: "running" | "settled" | "waiting";
}

export interface ListedPane {
  label: string;
  metrics: Metrics | null;
  model: string | null;
  pane: number;
  run_id: string | null;
  settlement: PaneEnding | null;
  status: "running" | "settled" | "waiting";
}

export interface Pane {
  earlier: (EarlierAnswer | null)[];
  label: string;
  metrics: Metrics | null;
  model: string | null;
  pane: number;
  pictures: string[];
  reasoning: string | null;
  run_id: string | null;
  settlement: Settlement | null;
  status: "running" | "settled" | "waiting";
  steps: Step[];
  text: string;
}

export interface Vote {
  at: string;
  winner: number | "none" | "tie";
}

export interface ComparisonHead {
  blind: boolean;
  created_at: string;
  id: string;
  kind: string;
  lifetime: "attached" | "detached";
  order: "parallel" | "sequential";
  revealed: boolean;
  settled_at: string | null;
  status: "running" | "settled";
  timeout: number | null;
  turns: number;
  vote: Vote | null;
}

export interface ListedComparison {
  blind: boolean;
  created_at: string;
  id: string;
  kind: string;
  lifetime: "attached" | "detached";
  order: "parallel" | "sequential";
  panes: ListedPane[];
  prompt: string;
  revealed: boolean;
  settled_at: string | null;
  status: "running" | "settled";
  timeout: number | null;
  turns: number;
  vote: Vote | null;
}

export interface Synthesis {
  cost: number | null;
  created_at: string;
  model: string;
  old: boolean;
  panes: number[];
  pictures: string[];
  reasoning: string | null;
  run_id: string;
  settlement: Settlement | null;
  status: "running" | "settled";
  text: string;
  turn: number;
}

export interface Comparison {
  blind: boolean;
  created_at: string;
  id: string;
  kind: string;
  lifetime: "attached" | "detached";
  order: "parallel" | "sequential";
  panes: Pane[];
  params: Record<string, unknown>;
  prompt: string | Part[];
  prompts: (string | Part[])[];
  revealed: boolean;
  settled_at: string | null;
  status: "running" | "settled";
  synthesis: Synthesis | null;
  system: string | null;
  timeout: number | null;
  turns: number;
  vote: Vote | null;
}

export interface ComparisonFrame {
  comparison: Comparison;
  type: "comparison.settled" | "comparison.started";
}

export interface FormOption {
  value: string;
  title: string;
}

export interface FormField {
  name: string;
  kind: "array" | "boolean" | "integer" | "number" | "string";
  title: string;
  description: string;
  required: boolean;
  options: FormOption[];
  default: boolean | number | number | string | string[] | null;
  format: string;
  lowest: number | null;
  highest: number | null;
}

export interface RunStartedEvent {
  type: "run.started";
  model?: string;
  message_id?: string | null;
}

export interface TextEvent {
  type: "text.delta";
  text: string;
  choice?: number;
  logprobs?: unknown;
  refusal?: boolean;
  earlier?: boolean;
}

export interface ReasoningEvent {
  type: "reasoning.delta";
  text: string;
  choice?: number;
  earlier?: boolean;
}

export interface PictureEvent {
  type: "picture";
  url: string;
  choice?: number;
}

export interface ToolDeltaEvent {
  type: "tool.delta";
  index: number;
  id?: string;
  name?: string;
  arguments?: string;
  choice?: number;
  kind?: "custom" | "function" | "function_call";
}

export interface ToolCallEvent {
  type: "tool.call";
  id: string;
  name: string;
  arguments: string;
  choice?: number;
  own?: boolean;
  kind?: "custom" | "function" | "function_call";
}

export interface ToolStartedEvent {
  type: "tool.started";
  id: string;
  effect_id: string;
  at: number;
  replay: "keyed" | "never" | "safe";
}

export interface ToolProgressEvent {
  type: "tool.progress";
  id: string;
  message?: string;
  fraction?: number | null;
  output?: string;
}

export interface ToolResultEvent {
  type: "tool.result";
  id: string;
  output: string;
  is_error: boolean;
  seconds: number | null;
  cut: boolean;
  content?: Record<string, unknown>[];
  waited?: number;
}

export interface ApprovalRequestedEvent {
  type: "approval.requested";
  id: string;
  tool: string;
  arguments: string;
  call: string;
  expires_at: number | null;
  preview: string;
  beginning: string;
}

export interface ApprovalDecidedEvent {
  type: "approval.decided";
  id: string;
  decision: "allow" | "deny";
  note?: string;
  arguments?: string;
}

export interface OutcomeRequestedEvent {
  type: "outcome.requested";
  id: string;
  tool: string;
  arguments: string;
  call: string;
  effect_id: string;
  since: number;
  printed: string;
  problem: string;
  expires_at: number | null;
}

export interface OutcomeDecidedEvent {
  type: "outcome.decided";
  id: string;
  decision: "again" | "ran" | "skip";
  note?: string;
}

export interface InputRequestedEvent {
  type: "input.requested";
  id: string;
  tool: string;
  call: string;
  message: string;
  fields: FormField[];
  expires_at: number | null;
}

export interface InputDecidedEvent {
  type: "input.decided";
  id: string;
  decision: "accept" | "cancel" | "decline";
  content?: Record<string, unknown>;
  note?: string;
}

export interface StepStartedEvent {
  type: "step.started";
  step: number;
}

export interface StepFinishedEvent {
  type: "step.finished";
  step: number;
  seconds: number;
}

export interface SteeredEvent {
  type: "run.steered";
  id: string;
  text: string;
}

export interface NoticeEvent {
  type: "notice";
  code: string;
  message: string;
  model?: string;
}

export interface LegStartedEvent {
  type: "leg.started";
  leg: number;
  before: string;
  model: string;
  how: "anew" | "prefill" | "turn";
  reason: string;
  at: number;
  usage: UsageEvent;
}

export interface ProviderDataEvent {
  type: "provider.data";
  dialect: "anthropic" | "openai";
  data: Record<string, unknown>;
  choice?: number;
}

export interface SnapshotEvent {
  type: "snapshot";
  text: string;
  reasoning: string;
}

export type RunEvent =
  | RunStartedEvent
  | TextEvent
  | ReasoningEvent
  | PictureEvent
  | ToolDeltaEvent
  | ToolCallEvent
  | ToolStartedEvent
  | ToolProgressEvent
  | ToolResultEvent
  | ApprovalRequestedEvent
  | ApprovalDecidedEvent
  | OutcomeRequestedEvent
  | OutcomeDecidedEvent
  | InputRequestedEvent
  | InputDecidedEvent
  | StepStartedEvent
  | StepFinishedEvent
  | SteeredEvent
  | UsageEvent
  | NoticeEvent
  | LegStartedEvent
  | ProviderDataEvent
  | SnapshotEvent
  | SettledEvent;

export type FeedEntry =
  | MessageAdded
  | MessageChanged
  | RunQueued
  | RunBegan
  | RunEnded
  | SessionChanged;
