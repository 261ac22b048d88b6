/** The messages of the branch that is shown, as far as they are in sight, and the answer that is being written. */

import { ArrowDown } from "lucide";
import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { target } from "../router";
import { showBranch } from "../state/current";
import type { LiveRun } from "../state/live";
import type { Ending, Transcript } from "../state/transcript";
import type { Message } from "../types";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { Answer, NoAnswer } from "./answer";
import { textOf } from "./content";
import { AskedToContinue, editing, Instructions, SendingMessage, UserMessage } from "./user-message";
import { ConversationView } from "./view";
import { pieces, type Range, type Sized } from "./window";

export function Messages({ transcript }: { transcript: Transcript }) {
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
  const isOnBranch = transcript.messages.value.some(({ id }) => id === target.value);
  useEffect(() => {
    if (!target.value) return;
    if (isOnBranch) view.show(target.value);
    else showBranch(target.value); // a search may find what was said on another one
  }, [target.value, isOnBranch]);
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

/** A message, one that is being sent, or the answer that is being written: it keeps its place when it becomes one. */
interface Line extends Sized {
  message: Message | null;
  live: LiveRun | null;
}

function useLines(transcript: Transcript): Line[] {
  const messages = transcript.messages.value;
  const live = transcript.live.value;
  const sending = transcript.sending.value;
  return useMemo(() => {
    const lines: Line[] = messages
      .filter(({ id, role }) => id !== live?.messageId && role !== "tool")
      .map((message) => ({ key: message.id, guess: guessed(message), message, live: null }));
    if (live) lines.push({ key: live.messageId, guess: 100, message: null, live });
    if (sending !== null) lines.push({ key: SENDING, guess: 100, message: null, live: null });
    return lines;
  }, [messages, live, sending]);
}

const SENDING = "sending";

/** How high a message may be: by its words and its line breaks, and what always stands around them. */
function guessed({ content, role }: Message): number {
  const text = textOf(content);
  const rows = text.length / 85 + text.split("\n").length * 0.7;
  return (role === "user" ? 80 : 70) + 25 * rows;
}

/** Draws lines. One that has not changed is the same vnode as before, and nobody looks at it again. */
function useDrawing(transcript: Transcript, view: ConversationView): (line: Line, next: Message | null) => VNode {
  const results = useToolResults(transcript);
  const last = useRef(new Map<string, Drawn>());
  const before = last.current;
  const drawn = new Map<string, Drawn>();
  last.current = drawn;
  return ({ key, guess, message, live }, next) => {
    const props: LineProps = { name: key, guess, message, live, next, transcript, results, view };
    const known = before.get(key);
    const line = known && isSame(known.props, props) ? known : { props, vnode: <LinePlace key={key} {...props} /> };
    drawn.set(key, line);
    return line.vnode;
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
function useToolResults(transcript: Transcript): ReadonlyMap<string, Message> {
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

interface LineProps {
  name: string;
  guess: number;
  message: Message | null;
  live: LiveRun | null;
  next: Message | null;
  transcript: Transcript;
  results: ReadonlyMap<string, Message>;
  view: ConversationView;
}

/** A line that is not in sight is not even laid out: it is as high as it was, or as a gap in its place would be. */
function LinePlace({ name, guess, view, ...line }: LineProps) {
  const place = useElement<HTMLDivElement>();
  const height = useMemo(() => view.heights.known(name) ?? guess, [name]);
  useLayoutEffect(() => view.observe(name, place.current), [name]);
  return (
    <div
      class={`line ${target.value === name ? "is-target" : ""}`}
      style={{ containIntrinsicBlockSize: `auto ${height}px` }}
      data-line={name}
      ref={place}
    >
      <LineContent {...line} />
    </div>
  );
}

type ContentProps = Omit<LineProps, "name" | "guess" | "view">;

function LineContent({ message, live, next, transcript, results }: ContentProps) {
  if (live && (!message || message.role === "assistant"))
    return <Answer message={message} live={live} transcript={transcript} results={results} />;
  if (!message) return <Sending transcript={transcript} />;
  if (message.role === "assistant")
    return <Answer message={message} live={null} transcript={transcript} results={results} />;
  if (message.role === "system" || message.role === "developer") return <Instructions message={message} />;
  if (message.automatic) return <AskedToContinue />;
  const ending = next?.role === "assistant" ? null : silentEnding(transcript, message, next);
  return (
    <>
      <UserMessage message={message} transcript={transcript} />
      {ending && transcript.live.value?.parentId !== message.id && (
        <NoAnswer ending={ending} message={message} isLast={next === null} />
      )}
    </>
  );
}

function Sending({ transcript }: { transcript: Transcript }) {
  const sending = transcript.sending.value;
  return sending !== null && <SendingMessage content={sending} />;
}

/** How the newest run ended that was to answer a message and said nothing. */
function silentEnding(transcript: Transcript, message: Message, next: Message | null): Ending | null {
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
