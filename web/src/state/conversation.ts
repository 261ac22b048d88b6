/** A chat as the page shows it, be it stored on the server or only in this tab: what was said, and what can be done. */
import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { IfBusy } from "../api";
import type { Content, Message, Queued, Session, Settlement, Shared } from "../types";
import type { LiveRun } from "./live";

/** How a run ended, and where: with its message, or, where it said nothing, after the message that it was to answer. */
export interface Ending {
  runId: string;
  messageId: string | null;
  parentId: string | null;
  model: string;
  settlement: Settlement;
}

export type Loading = "loading" | "ready" | "missing" | "failed";

export type Setup = Pick<Session, "model" | "system" | "params" | "on_break" | "preset">;

/** What is changed of a set-up, made of the parameters as they are when all earlier changes were taken. */
export type Change = (params: Setup["params"]) => Partial<Setup>;

export abstract class Conversation {
  readonly loading = signal<Loading>("loading");
  readonly problem = signal("");
  readonly session = signal<Session | null>(null);
  /** Who shares it with this person, if it is another's. */
  readonly shared = signal<Shared | null>(null);
  readonly mayWrite = computed(() => this.shared.value?.may !== "read");
  /** Whether messages of more than one person are in it. */
  readonly hasAuthors = computed(
    () => new Set(this.messages.value.flatMap(({ author }) => author ?? [])).size > 1 || this.shared.value !== null,
  );
  /** Those of the branch that is shown. */
  readonly messages = signal<Message[]>([]);
  readonly live = signal<LiveRun | null>(null);
  readonly queued = signal<Queued[]>([]);
  readonly endings = signal<ReadonlyMap<string, Ending>>(new Map());
  /** The run that ended last, of those that this tab has seen going on or has started. */
  readonly ended = signal<Ending | null>(null);
  readonly isRunning = computed(() => this.live.value !== null);
  /** The number of the last entry of the chat's feed that this tab has taken. */
  readonly read = signal(0);
  /** The last message of the branch that is shown. */
  readonly head = computed(() => this.messages.value.at(-1) ?? null);
  /** What was sent and is not on the page yet. */
  abstract readonly sending: ReadonlySignal<Content | null>;
  /** It is only in this tab: nothing can lead to it, and no run of it can be looked up. */
  readonly isTemporary: boolean = false;

  constructor(readonly id: string) {}

  abstract load(): Promise<void>;
  abstract close(): void;
  /** Look up how one run ended that is not among the newest. */
  abstract fetchEnding(runId: string): Promise<void>;

  /** Send a message. Settles when the server has taken it, or has refused it. */
  abstract ask(input: Content, ifBusy: IfBusy): Promise<void>;
  abstract stop(): Promise<void>;
  /** Stop what is going on, and drop what is queued. */
  abstract stopAll(): Promise<void>;
  abstract regenerate(messageId: string, model?: string): Promise<void>;
  abstract continue(messageId: string): Promise<void>;
  abstract edit(messageId: string, input: Content): Promise<void>;
  abstract showBranch(messageId: string): Promise<void>;
  abstract change(change: Change): Promise<void>;
  /** What waits is named by its run: its number is that of another once it was moved. */
  abstract changeQueued(run: string, input: Content): Promise<void>;
  abstract dropQueued(run: string): Promise<void>;
  /** Put it at a place among those that wait, from 1 on. */
  abstract moveQueued(run: string, place: number): Promise<void>;
  /** Stop the response that is going on, and send it in its place. */
  abstract sendQueued(run: string): Promise<void>;

  protected noteEnding(ending: Ending): void {
    this.endings.value = new Map(this.endings.value).set(ending.runId, ending);
  }
}
