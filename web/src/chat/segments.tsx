/** An answer in the order in which it came about: words, the tools that were called then, and what was put in after them. */
import { CornerDownRight } from "lucide";
import { Markdown } from "../markdown/markdown";
import type { Segment } from "../state/live";
import type { Message, Step } from "../types";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { textOf } from "./content";
import { Tools, toolsOf } from "./tools";

interface SegmentsProps {
  segments: Segment[];
  isGoingOn: boolean;
  /** The calls that wait for a person. */
  waiting?: ReadonlySet<string>;
}

export function Segments({ segments, isGoingOn, waiting }: SegmentsProps) {
  return segments.map(({ text, tools, inputs, joints }, index) => (
    <div class="segment" key={index}>
      {(text || !tools.length) && (
        <Markdown text={text} joints={joints} isStreaming={isGoingOn && index === segments.length - 1} />
      )}
      <Tools tools={tools} isGoingOn={isGoingOn} waiting={waiting} />
      {inputs.map((input, number) => (
        <Steered key={number} text={input} />
      ))}
    </div>
  ));
}

/** A message that a person put into the answer while it was being made. */
function Steered({ text }: { text: string }) {
  return (
    <div class="steered" role="note" aria-label={t().youWhileWorking}>
      <Icon node={CornerDownRight} size={16} />
      <div class="bubble">
        <div class="said" dir="auto">
          {text}
        </div>
      </div>
    </div>
  );
}

type Said = Pick<Message, "content" | "steps" | "tool_calls">;

export function segmentsOf(message: Said, results: ReadonlyMap<string, Message>): Segment[] {
  if (message.steps?.length) return message.steps.map(segmentOf);
  return [{ text: textOf(message.content), tools: toolsOf(message, results), inputs: [] }];
}

/** The segments of a response's parts, as those of one. A text that was cut off and the text that continues it are one text. */
export function joined(parts: Segment[][]): Segment[] {
  const all: Segment[] = [];
  for (const [first, ...rest] of parts) {
    const last = all.at(-1);
    if (last && first && !last.tools.length && !last.inputs.length)
      all.splice(-1, 1, { ...first, text: last.text + first.text, joints: [...(last.joints ?? []), last.text.length] });
    else if (first) all.push(first);
    all.push(...rest);
  }
  return all;
}

function segmentOf({ text, tool_calls, inputs }: Step): Segment {
  const tools = tool_calls.map(({ is_error, unfinished, ...call }) => ({
    ...call,
    progress: "",
    streamed: "",
    isError: is_error,
    isUnfinished: unfinished,
    startedAt: 0,
  }));
  return { text, tools, inputs };
}
