/** What the server sends: the generated types of the native API, and the frames of its streams. */
import type {
  ApprovalDecidedEvent,
  ApprovalRequestedEvent,
  ComparisonFrame,
  FeedEntry,
  InputDecidedEvent,
  InputRequestedEvent,
  OutcomeDecidedEvent,
  OutcomeRequestedEvent,
  RunEvent,
  Session,
  SessionDeleted,
  SessionListed,
  SessionsChanged,
} from "./protocol.generated";

export type * from "./protocol.generated";

/** One event of a run, with its number. */
export type RunFrame = RunEvent & { run: string; seq: number };

/** What a run asks a person: it waits until there is an answer. */
export type AskedEvent = ApprovalRequestedEvent | OutcomeRequestedEvent | InputRequestedEvent;
export type AnsweredEvent = ApprovalDecidedEvent | OutcomeDecidedEvent | InputDecidedEvent;

/** One change of the list of sessions. */
export type ListFrame = SessionListed | SessionDeleted | SessionsChanged;

/** One frame of the feeds of sessions: an entry, or an event of the run that is going on; or a change of the list. */
export type FeedFrame = FeedEntry | RunFrame | ListFrame;

/** One frame of a comparison's stream: an event of a pane's run, or the whole comparison at the start and at the end. */
export type PaneFrame = RunFrame & { pane: number };
export type ComparisonStreamFrame = PaneFrame | ComparisonFrame;

/** The `default` of a switch over every type of event: a new type does not compile; at run time it is ignored. */
export function ignoreUnknown(_event: never): void {}

export interface Model {
  id: string;
  provider: string;
  name: string;
  /** For trying things out: scripted answers, or the tiny built-in model. */
  demo: boolean;
  /** It runs on a machine of the operator, and may read a long prompt for minutes. */
  local: boolean;
  /** What is done if a response breaks off in a chat that does not say it. */
  on_break: OnBreak;
  /** Tokens that a prompt and its answer have together; null if nobody has said. */
  window: number | null;
  /** Whether it takes pictures; null if nobody has said. */
  sees: boolean | null;
  /** The values of `reasoning_effort` that it takes. */
  efforts: string[];
  /** It is an agent with files. */
  files: boolean;
}

export type OnBreak = NonNullable<Session["on_break"]>;

export interface ProviderState {
  name: string;
  ok: boolean;
  /** Its upstream has not answered yet for the first time. */
  pending: boolean;
  /** The reason, if it cannot be used and the server knows it. */
  why: string | null;
  models: string[];
  demo: boolean;
}

export interface Models {
  models: Model[];
  default: string | null;
  providers: ProviderState[];
  /** Of all prices: an ISO 4217 code. */
  currency: string;
}
