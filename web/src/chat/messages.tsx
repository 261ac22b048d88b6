/** The messages of the branch that is shown, as far as they are in sight, and the answer that is being written. */

import { ArrowDown } from "lucide";
import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { CompactionLine } from "../context/line";
import { isEndInView } from "../notifications/unread";
import { target } from "../router";
import type { Conversation, Ending } from "../state/conversation";
import { showBranch } from "../state/current";
import type { LiveRun } from "../state/live";
import type { Message } from "../types";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { Answer, NoAnswer } from "./answer";
import { textOf } from "./content";
import { editing } from "./edit-message";
import { found, markFound, unmarkFound } from "./found";
import { type Shown, shownOf } from "./responses";
import { Instructions, SendingMessage, UserMessage } from "./user-message";
import { ConversationView } from "./view";
import { pieces, type Range, type Sized } from "./window";

export function Messages({ transcript }: { transcript: Conversation }) {
  const view = useMemo(() => new ConversationView(), []);
  const scroller = useElement<HTMLDivElement>();
  const lines = useLines(transcript);
  const draw = useDrawing(transcript, view);
  view.version.value;
  const shown = pieces(view.ranges(lines, [editing.value]), lines.length);
  const drawLine = (at: number) => {
    const line = lines[at];
    return line && draw(line, lines[at + 1]?.message ?? null);
  };
  useLayoutEffect(() => view.attach(scroller.current), []);
  useLayoutEffect(() => view.drawn());
  useEffect(() => {
    isEndInView.value = view.isAtEnd.value;
  }, [view.isAtEnd.value]);
  const isOnBranch = transcript.messages.value.some(({ id }) => id === target.value);
  const sought = lines.find((line) => target.value && has(line, target.value))?.key ?? null;
  const led = useRef<string | null>(null);
  useEffect(() => {
    if (led.current === target.value) return; // its reader has been there, and may have left its branch since
    if (sought) view.show(sought);
    else if (target.value && !isOnBranch) showBranch(target.value); // a search may find what was said on another one
    if (sought || !target.value) led.current = target.value;
  }, [target.value, sought, isOnBranch]);
  useFound(view, lines);
  const isAsking = transcript.sending.value !== null && !transcript.isRunning.value;
  useLayoutEffect(() => {
    if (isAsking) view.toEnd(); // whoever says something wants to see it, and its response
  }, [isAsking]);
  return (
    <div class="transcript-place">
      <div class="transcript" ref={scroller} role="log" aria-live="off" aria-label={t().conversation} tabIndex={-1}>
        <div class="column">
          {shown.map((piece) =>
            typeof piece === "number" ? (
              drawLine(piece)
            ) : (
              <Gap key={`gap-${piece.from}`} view={view} lines={lines} range={piece} />
            ),
          )}
        </div>
      </div>
      {!view.isAtEnd.value && (
        <button
          type="button"
          class="to-end"
          aria-label={t().scrollToBottom}
          title={t().scrollToBottom}
          onClick={() => view.toEnd()}
        >
          <Icon node={ArrowDown} />
        </button>
      )}
    </div>
  );
}

/** Go to the words that a search has found, once their message is drawn, and mark them. */
function useFound(view: ConversationView, lines: Line[]): void {
  const hit = found.value?.message_id === target.value ? found.value : null;
  const line = lines.find((each) => hit && has(each, hit.message_id));
  const place = line ? view.drawnLine(line.key) : null;
  useEffect(() => {
    if (!hit || !line || !place) return;
    const parts = [...line.earlier, line.message];
    const at = parts.findIndex((part) => part?.id === hit.message_id);
    const before = parts.slice(0, at).reduce((length, part) => length + [...textOf(part?.content ?? "")].length, 0);
    const text = parts.map((part) => textOf(part?.content ?? "")).join("");
    const below = markFound(place, text, { ...hit, offset: hit.offset + before });
    if (below !== null) view.showWithin(line.key, below);
    return unmarkFound;
  }, [hit, place]);
}

/** A message, one that is being sent, or the answer that is being written: it keeps its place when it becomes one. */
interface Line extends Sized {
  message: Message | null;
  /** The parts of a response that came before its message, or before the run that continues it. */
  earlier: readonly Message[];
  asked: Message | null;
  live: LiveRun | null;
}

function useLines(transcript: Conversation): Line[] {
  const messages = transcript.messages.value;
  const live = transcript.live.value;
  const sending = transcript.sending.value;
  return useMemo(() => {
    const lines = shownOf(messages.filter(({ id }) => id !== live?.messageId)).map(lineOf);
    const last = lines.at(-1);
    if (live && last?.asked?.id === live.parentId) lines.splice(-1, 1, { ...last, ...continuedBy(last, live) });
    else if (live) lines.push({ ...EMPTY, key: live.messageId, live });
    if (sending !== null) lines.push({ ...EMPTY, key: SENDING });
    return lines;
  }, [messages, live, sending]);
}

const SENDING = "sending";
const EMPTY: Omit<Line, "key"> = { guess: 100, message: null, earlier: [], asked: null, live: null };

/** A response is where its first part was: it keeps its place when it is continued. */
function lineOf({ message, earlier, asked }: Shown): Line {
  const parts = [...earlier, message];
  const guess = parts.reduce((height, part) => height + guessed(part), 0);
  return { key: parts[0]?.id ?? "", guess, message, earlier, asked, live: null };
}

function continuedBy({ earlier, message }: Line, live: LiveRun): Partial<Line> {
  return { earlier: message ? [...earlier, message] : earlier, message: null, asked: null, live };
}

/** Whether a line shows a message, be it as a part of a response, or as the turn that asked for one. */
function has({ message, earlier, asked }: Line, id: string): boolean {
  const parts = [...earlier, message, asked];
  return parts.some((part, at) => part?.id === id || (at > 0 && part?.parent_id === id));
}

/** How high a message may be: by its words and its line breaks, and what always stands around them. */
function guessed({ content, role }: Message): number {
  const text = textOf(content);
  const rows = text.length / 85 + text.split("\n").length * 0.7;
  return (role === "user" ? 80 : 70) + 25 * rows;
}

/** Draws lines. One that has not changed is the same vnode as before, and nobody looks at it again. */
function useDrawing(transcript: Conversation, view: ConversationView): (line: Line, next: Message | null) => VNode {
  const results = useToolResults(transcript);
  const last = useRef(new Map<string, Drawn>());
  const before = last.current;
  const drawn = new Map<string, Drawn>();
  last.current = drawn;
  return (line, next) => {
    const { key, ...shown } = line;
    const isTarget = target.value !== null && has(line, target.value);
    const props: LineProps = { name: key, ...shown, isTarget, next, transcript, results, view };
    const known = before.get(key);
    const now = known && isSame(known.props, props) ? known : { props, vnode: <LinePlace key={key} {...props} /> };
    drawn.set(key, now);
    return now.vnode;
  };
}

interface Drawn {
  props: LineProps;
  vnode: VNode;
}

function isSame(one: LineProps, other: LineProps): boolean {
  return (Object.keys(one) as (keyof LineProps)[]).every((name) => one[name] === other[name]);
}

/** What tools gave back, by their calls. The same map as before where nothing has come. */
function useToolResults(transcript: Conversation): ReadonlyMap<string, Message> {
  const messages = transcript.messages.value;
  const last = useRef<ReadonlyMap<string, Message>>(new Map());
  return useMemo(() => {
    const found = messages.filter(({ role }) => role === "tool");
    const isNews = found.length !== last.current.size || found.some((each) => last.current.get(callOf(each)) !== each);
    if (isNews) last.current = new Map(found.map((message) => [callOf(message), message]));
    return last.current;
  }, [messages]);
}

const callOf = ({ tool_call_id }: Message): string => tool_call_id ?? "";

interface LineProps extends Omit<Line, "key"> {
  name: string;
  isTarget: boolean;
  next: Message | null;
  transcript: Conversation;
  results: ReadonlyMap<string, Message>;
  view: ConversationView;
}

/** A line that is not in sight is not even laid out: it is as high as it was, or as a gap in its place would be. */
function LinePlace({ name, guess, view, isTarget, ...line }: LineProps) {
  const place = useElement<HTMLDivElement>();
  const height = useMemo(() => view.heights.known(name) ?? guess, [name]);
  useLayoutEffect(() => view.observe(name, place.current), [name]);
  return (
    <div
      class={`line ${isTarget ? "is-target" : ""}`}
      style={{ containIntrinsicBlockSize: `auto ${height}px` }}
      data-line={name}
      ref={place}
    >
      <LineContent {...line} />
    </div>
  );
}

type ContentProps = Omit<LineProps, "name" | "guess" | "view" | "isTarget">;

function LineContent({ message, live, earlier, asked, next, transcript, results }: ContentProps) {
  const answer = { earlier, transcript, results };
  if (live) return <Answer message={null} live={live} {...answer} />;
  if (!message) return <Sending transcript={transcript} />;
  if (message.role === "system" || message.role === "developer") return <Instructions message={message} />;
  const question = message.role === "assistant" ? asked : message;
  if (message.compacts)
    return (
      <>
        <CompactionLine message={message} next={next} transcript={transcript} />
        <Unanswered question={message} asked={message} next={next} transcript={transcript} />
      </>
    );
  return (
    <>
      {message.role === "assistant" ? (
        <Answer message={message} live={null} {...answer} />
      ) : (
        <UserMessage message={message} transcript={transcript} />
      )}
      {question && <Unanswered question={question} asked={earlier[0] ?? message} next={next} transcript={transcript} />}
    </>
  );
}

interface UnansweredProps extends Pick<ContentProps, "next" | "transcript"> {
  question: Message;
  asked: Message;
}

/** Why a message has no response, if a run was to give one and said nothing. */
function Unanswered({ question, asked, next, transcript }: UnansweredProps) {
  const ending = silentEnding(transcript, question, next);
  if (!ending || transcript.live.value?.parentId === question.id) return null;
  const isLast = next === null && transcript.mayWrite.value;
  const { isTemporary } = transcript;
  return <NoAnswer ending={ending} message={question} asked={asked} isLast={isLast} isTemporary={isTemporary} />;
}

function Sending({ transcript }: { transcript: Conversation }) {
  const sending = transcript.sending.value;
  return sending !== null && <SendingMessage content={sending} />;
}

/** How the newest run ended that was to answer a message and said nothing. */
function silentEnding(transcript: Conversation, message: Message, next: Message | null): Ending | null {
  if (next && next.role !== "user") return null;
  const endings = [...transcript.endings.value.values()].filter(
    ({ parentId, settlement }) => parentId === message.id && !settlement.text && settlement.outcome !== "completed",
  );
  return endings.sort((a, b) => (a.runId < b.runId ? 1 : -1))[0] ?? null;
}

/** Messages that are not drawn now. Whoever comes to it without scrolling, with a screen reader say, can ask for them. */
function Gap({ view, lines, range }: { view: ConversationView; lines: Line[]; range: Range }) {
  const nearest = lines[range.from === 0 ? range.to - 1 : range.from];
  return (
    <div class="gap" style={{ height: `${view.heights.of(range)}px` }}>
      <button type="button" class="link" onClick={() => nearest && view.show(nearest.key)}>
        {t().moreMessages(range.to - range.from)}
      </button>
    </div>
  );
}
