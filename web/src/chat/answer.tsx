/** What a model said: while it is being said, and after, with how it ended. */
import { Brain, ChevronRight, FoldVertical, GitFork, Play, RefreshCw, ScanSearch, TriangleAlert } from "lucide";
import { useEffect, useState } from "preact/hooks";
import { compactAndSend } from "../context/state";
import { picturesOf } from "../files/attached";
import { Questions } from "../questions";
import type { Conversation, Ending } from "../state/conversation";
import { continueAnswer, forkAt, regenerate } from "../state/current";
import type { LiveRun, Notice, Seam } from "../state/live";
import type { Message } from "../types";
import { CopyButton } from "../ui/copy";
import { useDerived } from "../ui/derived";
import { Icon } from "../ui/icon";
import { Later } from "../ui/later";
import { MessageMenu } from "../versions/menu";
import { t } from "../words";
import { seconds } from "../words/time";
import { Branches } from "./branches";
import { editing } from "./edit-message";
import { LiveFigures, ResponseFigures, SettledFigures } from "./figures";
import { OtherModel } from "./other-model";
import { tellOutcome } from "./outcome";
import { joinedText } from "./responses";
import { joined, Segments, segmentsOf } from "./segments";
import { Spent, useSpentLimit } from "./spent";
import { WhatToDo } from "./what-to-do";

/** A message did not fit into the model's window. */
const TOO_LONG = "context_length_exceeded";
const PICTURES = () => import("../files/answer-pictures");
const ANSWER_EDIT = () => import("../versions/answer-edit");

/** What is being said, or else what was said. */
type Said = { live: LiveRun; message: null } | { live: null; message: Message };

type AnswerProps = Said & {
  /** The parts that it continues. */
  earlier: readonly Message[];
  transcript: Conversation;
  results: ReadonlyMap<string, Message>;
};

/** One component for all of an answer's life: when it ends, what stands there is not drawn again. */
export function Answer({ transcript, results, earlier, ...said }: AnswerProps) {
  const { live, message } = said;
  live?.version.value;
  const isEdited = useDerived(() => message !== null && editing.value === message.id, [message?.id]);
  if (message && isEdited) return <Later load={ANSWER_EDIT} message={message} session={transcript.id} />;
  const parts = message ? [...earlier, message] : earlier;
  const reasoning = [...parts.map((part) => part.reasoning), live?.reasoning].filter(Boolean).join("\n\n");
  const pictures = [...parts.flatMap(({ content }) => picturesOf(content)), ...(live?.pictures ?? [])];
  return (
    <article
      class={`message answer ${live ? "is-live" : ""}`}
      data-message={live?.messageId ?? message?.id}
      data-outcome={live ? undefined : message?.outcome}
      aria-label={t().response}
      aria-busy={live ? "true" : undefined}
    >
      {reasoning && (
        <Reasoning
          key="reasoning"
          text={reasoning}
          isGoingOn={live?.isThinking ?? false}
          thought={thoughtFor(parts, live)}
        />
      )}
      <Segments
        key="segments"
        segments={joined([...parts.map((part) => segmentsOf(part, results)), ...(live ? [live.segments] : [])])}
        isGoingOn={live !== null}
        waiting={new Set(live?.open.map(({ asked }) => asked.call))}
      />
      {pictures.length > 0 && <Later key="pictures" load={PICTURES} urls={pictures} session={transcript.id} />}
      {said.live ? (
        <GoingOn key="going-on" live={said.live} transcript={transcript} />
      ) : (
        <Settled key="settled" message={said.message} earlier={earlier} transcript={transcript} />
      )}
    </article>
  );
}

function GoingOn({ live, transcript }: { live: LiveRun; transcript: Conversation }) {
  live.version.value;
  const isSilent = !live.text && !live.reasoning && !live.tools.length && !live.pictures.length;
  const waits = live.notices.filter(({ code }) => code !== "new_turn"); // the response shows where it was continued
  return (
    <>
      <Questions live={live} isTemporary={transcript.isTemporary} />
      {isSilent ? <Waiting notices={waits} /> : <Notices notices={live.lastingNotices} />}
      <Seams legs={live.legs} />
      <footer>
        <LiveFigures live={live} transcript={transcript} />
      </footer>
    </>
  );
}

interface SettledProps {
  message: Message;
  earlier: readonly Message[];
  transcript: Conversation;
}

function Settled({ message, earlier, transcript }: SettledProps) {
  const parts = [...earlier, message];
  const first = parts[0] ?? message;
  // Derived, so that what happens at the end of a long session draws no other answer again.
  const ending = useDerived(() => transcript.endings.value.get(message.run_id ?? "") ?? null, [message.run_id]);
  const mayWrite = transcript.mayWrite.value;
  const isLast = useDerived(
    () => transcript.head.value?.id === message.id && !transcript.isRunning.value,
    [message.id],
  );
  useEffect(() => {
    if (message.run_id && !ending && message.outcome !== "completed")
      transcript.fetchEnding(message.run_id).catch(() => {});
  }, [message.run_id]);
  return (
    <>
      <OutcomeLine
        message={message}
        first={first}
        ending={ending}
        isLast={isLast && mayWrite}
        mayContinue={message.partial && typeof message.content === "string" && !transcript.isTemporary}
      />
      <Seams legs={parts.flatMap(({ legs }) => legs?.slice(1) ?? [])} />
      <footer>
        {parts.map((part) => (
          <Branches key={part.id} message={part} transcript={transcript} />
        ))}
        {parts.some(({ edited }) => edited) && <span class="note">{t().editedByPerson}</span>}
        <CopyButton text={joinedText(parts)} label={t().copyResponse} />
        {mayWrite && (
          <>
            <button
              type="button"
              class="quiet icon-button"
              title={t().regenerate}
              aria-label={t().regenerate}
              disabled={transcript.isRunning}
              onClick={() => regenerate(first.id)}
            >
              <Icon node={RefreshCw} size={16} />
            </button>
            <OtherModel messageId={first.id} isIcon isDisabled={transcript.isRunning.value} />
          </>
        )}
        {!transcript.shared.value && !transcript.isTemporary && (
          <button
            type="button"
            class="quiet icon-button"
            title={t().forkHere}
            aria-label={t().forkHere}
            onClick={() => forkAt(message.id)}
          >
            <Icon node={GitFork} size={16} />
          </button>
        )}
        {message.run_id && !transcript.isTemporary && <RunLink id={message.run_id} />}
        <MessageMenu message={message} parts={parts} transcript={transcript} />
        <ResponseFigures parts={parts} ending={ending} />
      </footer>
    </>
  );
}

function RunLink({ id }: { id: string }) {
  return (
    <a class="quiet icon-button" href={`/runs/${id}`} title={t().runDetails} aria-label={t().runDetails}>
      <Icon node={ScanSearch} size={16} />
    </a>
  );
}

export function Waiting({ notices }: { notices: Notice[] }) {
  const last = notices.at(-1);
  return (
    <p class="waiting">
      <span class="dots" aria-hidden="true">
        <i />
        <i />
        <i />
      </span>
      <span>{last && <Told notice={last} />}</span>
    </p>
  );
}

/** A notice. The time until something is tried again counts down. */
function Told({ notice: { message, at } }: { notice: Notice }) {
  const [now, setNow] = useState(performance.now());
  const whole = Number(/\bin ([\d.]+) s\b/.exec(message)?.[1] ?? 0);
  useEffect(() => {
    const timer = whole && at ? setInterval(() => setNow(performance.now()), 500) : 0;
    return () => clearInterval(timer);
  }, [message, at]);
  if (!whole || !at) return <>{message}</>;
  const left = Math.max(0, Math.ceil(whole - (now - at) / 1_000));
  return <>{message.replace(/\bin [\d.]+ s\b/, `in ${left} s`)}</>;
}

/** Says quietly that a response was written in more than one go, and by whom. */
function Seams({ legs }: { legs: Seam[] }) {
  return legs.map(({ model, at, reason }) => (
    <p class="notice" key={at}>
      {reason === "forked" ? t().forkedHere(model) : t().wentOn(model)}
    </p>
  ));
}

function Notices({ notices }: { notices: Notice[] }) {
  return notices.map(({ message }, index) => (
    <p class="notice" key={index}>
      {message}
    </p>
  ));
}

/** For how many milliseconds a response thought, in all of its parts; null if that of one is not known. */
function thoughtFor(parts: readonly Message[], live: LiveRun | null): number | null {
  const times = parts.filter((part) => part.reasoning).map((part) => part.figures?.thought_ms ?? null);
  if (live?.reasoning) times.push(live.thought);
  return times.reduce((one, other) => (one === null || other === null ? null : one + other), 0);
}

interface ReasoningProps {
  text: string;
  isGoingOn: boolean;
  /** How long it took, in milliseconds, if that is known. */
  thought?: number | null;
}

export function Reasoning({ text, isGoingOn, thought = null }: ReasoningProps) {
  return (
    <details class="reasoning">
      <summary>
        <Icon node={Brain} size={16} />
        {isGoingOn ? t().thinking : thought ? t().thoughtFor(seconds(thought)) : t().reasoning}
        {isGoingOn && (
          <span class="dots" aria-hidden="true">
            <i />
            <i />
            <i />
          </span>
        )}
        <Icon node={ChevronRight} size={14} />
      </summary>
      <div class="as-written" dir="auto">
        {text}
      </div>
    </details>
  );
}

interface OutcomeProps {
  message: Message;
  /** The first part of the response: who answers again answers all of it. */
  first: Message;
  ending: Ending | null;
  isLast: boolean;
  mayContinue: boolean;
}

function OutcomeLine({ message, first, ending, isLast, mayContinue }: OutcomeProps) {
  const told = tellOutcome(message.outcome, ending?.settlement ?? null);
  const isBudget = isLast && ending?.settlement.by === "budget";
  const spent = useSpentLimit(isBudget);
  if (!told) return null;
  return (
    <div class={`outcome ${told.kind}`} role="note">
      {told.kind !== "plain" && <Icon node={TriangleAlert} size={16} />}
      <span>
        <strong>{told.label}.</strong> {told.detail} <Spent limit={spent} /> <WhatToDo told={told} />
      </span>
      {isLast && (!isBudget || spent === null) && (
        <span class="ways-on">
          {mayContinue && (
            <button type="button" onClick={() => continueAnswer(message.id)}>
              <Icon node={Play} size={14} /> {t().continue}
            </button>
          )}
          <button type="button" onClick={() => regenerate(first.id)}>
            <Icon node={RefreshCw} size={14} /> {t().retry}
          </button>
          {told.kind !== "plain" && <OtherModel messageId={first.id} />}
        </span>
      )}
    </div>
  );
}

interface NoAnswerProps {
  ending: Ending;
  message: Message;
  /** What another model answers: the question, not the turn that asked a model to continue its own text. */
  asked: Message;
  isLast: boolean;
  isTemporary: boolean;
}

/** A run that ended before it said anything leaves no message; its reader is told why all the same. */
export function NoAnswer({ ending, message, asked, isLast, isTemporary }: NoAnswerProps) {
  const told = tellOutcome(ending.settlement.outcome, ending.settlement);
  if (!told) return null;
  return (
    <article class="message answer" data-outcome={ending.settlement.outcome} aria-label={t().noResponse}>
      <div class={`outcome ${told.kind}`} role="note">
        {told.kind !== "plain" && <Icon node={TriangleAlert} size={16} />}
        <span>
          <strong>{told.label}.</strong> {told.detail || t().noOutput} <WhatToDo told={told} />
        </span>
        {isLast && (
          <span class="ways-on">
            {ending.settlement.error?.code === TOO_LONG && message.parent_id && !message.compacts && !isTemporary && (
              <button type="button" class="primary" onClick={() => compactAndSend(message)}>
                <Icon node={FoldVertical} size={14} /> {t().compactAndSend}
              </button>
            )}
            <button type="button" onClick={() => regenerate(message.id)}>
              <Icon node={RefreshCw} size={14} /> {t().retry}
            </button>
            <OtherModel messageId={asked.id} />
          </span>
        )}
      </div>
      <footer>
        {!isTemporary && <RunLink id={ending.runId} />}
        <SettledFigures model={ending.model} ending={null} />
      </footer>
    </article>
  );
}
