/**
 * The messages of the branch that is shown, and the answer that is being written.
 *
 * Only the newest are drawn at first; older ones come as one scrolls up to them. The page follows the end of an answer
 * for as long as its reader is there, and stays put when they scroll up.
 */
import { ArrowDown } from "lucide";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { LiveRun } from "../state/live";
import type { Ending, Transcript } from "../state/transcript";
import type { Message } from "../types";
import { Icon } from "../ui/icon";
import { Answer, NoAnswer } from "./answer";
import { Instructions, SendingMessage, UserMessage } from "./user-message";

const AT_FIRST = 30;
const MORE = 30;
const NEAR = 80;

export function Messages({ transcript }: { transcript: Transcript }) {
  const [count, setCount] = useState(AT_FIRST);
  const scroller = useRef<HTMLDivElement>(null);
  const { isAtEnd, toEnd } = useStickyEnd(scroller);
  const live = transcript.live.value;
  const shown = transcript.messages.value.filter(({ id, role }) => id !== live?.messageId && role !== "tool");
  const drawn = shown.slice(-count);
  // Kept as it is while nothing is said, so that drawing older messages draws no other one again.
  const results = useMemo(() => toolResults(transcript.messages.value), [transcript.messages.value]);
  const sending = transcript.sending.value;
  return (
    <div class="transcript-place">
      <div class="transcript" ref={scroller} role="log" aria-live="off" aria-label="Conversation" tabIndex={-1}>
        <div class="column">
          {shown.length > count && <Older scroller={scroller} onSeen={() => setCount((before) => before + MORE)} />}
          {[
            ...drawn.map((message, index) => (
              <Line
                key={message.id}
                message={message}
                live={null}
                next={drawn[index + 1] ?? null}
                transcript={transcript}
                results={results}
              />
            )),
            sending !== null && <SendingMessage key="sending" content={sending} />,
            live && (
              <Line
                key={live.messageId}
                message={null}
                live={live}
                next={null}
                transcript={transcript}
                results={results}
              />
            ),
          ]}
        </div>
      </div>
      {!isAtEnd && (
        <button type="button" class="to-end" aria-label="To the end" title="To the end" onClick={toEnd}>
          <Icon node={ArrowDown} />
        </button>
      )}
    </div>
  );
}

interface LineProps {
  /** A message, or the answer that is being written: it keeps its place when it becomes one. */
  message: Message | null;
  live: LiveRun | null;
  next: Message | null;
  transcript: Transcript;
  results: ReadonlyMap<string, Message>;
}

function Line({ message, live, next, transcript, results }: LineProps) {
  if (!message || message.role === "assistant")
    return <Answer message={message} live={live} transcript={transcript} results={results} />;
  if (message.role === "system") return <Instructions message={message} />;
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

/** How the newest run ended that was to answer a message and said nothing. */
function silentEnding(transcript: Transcript, message: Message, next: Message | null): Ending | null {
  if (next && next.role !== "user") return null;
  const endings = [...transcript.endings.value.values()].filter(
    ({ parentId, settlement }) => parentId === message.id && !settlement.text && settlement.outcome !== "completed",
  );
  return endings.sort((a, b) => (a.runId < b.runId ? 1 : -1))[0] ?? null;
}

function toolResults(messages: Message[]): ReadonlyMap<string, Message> {
  return new Map(
    messages.filter(({ role }) => role === "tool").map((message) => [message.tool_call_id ?? "", message]),
  );
}

/** Stands above the oldest message that is drawn, and asks for more when it comes into view. */
function Older({ scroller, onSeen }: { scroller: { current: HTMLDivElement | null }; onSeen: () => void }) {
  const mark = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const box = scroller.current!;
    const observer = new IntersectionObserver(
      ([entry]) => {
        if (!entry?.isIntersecting) return;
        const fromEnd = box.scrollHeight - box.scrollTop;
        onSeen();
        requestAnimationFrame(() => {
          box.scrollTop = box.scrollHeight - fromEnd;
        });
      },
      { root: box, rootMargin: "600px 0px 0px" },
    );
    observer.observe(mark.current!);
    return () => observer.disconnect();
  });
  return <div class="older loading" ref={mark} />;
}

function useStickyEnd(scroller: { current: HTMLDivElement | null }) {
  const [isAtEnd, setAtEnd] = useState(true);
  const sticks = useRef(true);
  useLayoutEffect(() => {
    const box = scroller.current!;
    const column = box.firstElementChild!;
    let lastTop = 0;
    const follow = () => {
      if (sticks.current) box.scrollTop = box.scrollHeight;
    };
    const onScroll = () => {
      const isNear = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
      const wentUp = box.scrollTop < lastTop - 2;
      lastTop = box.scrollTop;
      if (isNear) sticks.current = true;
      else if (wentUp) sticks.current = false;
      setAtEnd(isNear || sticks.current);
    };
    const observer = new ResizeObserver(follow);
    observer.observe(column);
    observer.observe(box);
    box.addEventListener("scroll", onScroll, { passive: true });
    follow();
    return () => {
      observer.disconnect();
      box.removeEventListener("scroll", onScroll);
    };
  }, []);
  const toEnd = () => {
    sticks.current = true;
    setAtEnd(true);
    scroller.current!.scrollTop = scroller.current!.scrollHeight;
  };
  return { isAtEnd, toEnd };
}
