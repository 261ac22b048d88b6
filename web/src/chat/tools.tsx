/** Tool calls: their arguments, how far they are, their output so far, and their results. */
import { Check, ChevronRight, CircleStop, LoaderCircle, TriangleAlert, Wrench } from "lucide";
import { useEffect, useState } from "preact/hooks";
import type { ToolActivity } from "../state/live";
import type { Message } from "../types";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { seconds } from "../words/time";
import { CallView } from "./call-view";
import { textOf } from "./content";
import { gist } from "./whole-call";

type Called = Pick<Message, "tool_calls">;

export function toolsOf(message: Called, results: ReadonlyMap<string, Message>): ToolActivity[] {
  return (message.tool_calls ?? []).map(({ id, name, arguments: given }) => ({
    id,
    name,
    arguments: given,
    progress: "",
    streamed: "",
    output: outputOf(results.get(id)),
    isError: false,
    isUnfinished: false,
    seconds: null,
    decision: null,
    edited: null,
    startedAt: 0,
  }));
}

const outputOf = (result: Message | undefined): string | null => (result ? textOf(result.content) : null);

interface ToolsProps {
  tools: ToolActivity[];
  isGoingOn: boolean;
  /** The calls that wait for approval. */
  waiting?: ReadonlySet<string>;
}

export function Tools({ tools, isGoingOn, waiting }: ToolsProps) {
  return tools.map((tool) => (
    <Tool key={tool.id} tool={tool} unfinished={waiting?.has(tool.id) ? "waiting" : isGoingOn ? "running" : "called"} />
  ));
}

type State = "waiting" | "running" | "called" | "stopped" | "uncertain" | "denied" | "failed" | "done";

/** How the result ends of a call that was cut off before anyone allowed it. Any other may have run. */
const DID_NOT_RUN = "did not run.";

function stateOf(tool: ToolActivity, unfinished: "waiting" | "running" | "called"): State {
  if (tool.isUnfinished) return tool.output?.endsWith(DID_NOT_RUN) ? "stopped" : "uncertain";
  if (tool.output === null) return unfinished;
  return tool.decision === "deny" ? "denied" : tool.isError ? "failed" : "done";
}

const ICONS = {
  running: LoaderCircle,
  done: Check,
  failed: TriangleAlert,
  denied: TriangleAlert,
  stopped: CircleStop,
  uncertain: CircleStop,
};

function Tool({ tool, unfinished }: { tool: ToolActivity; unfinished: "waiting" | "running" | "called" }) {
  const state = stateOf(tool, unfinished);
  const icon = state in ICONS ? ICONS[state as keyof typeof ICONS] : null;
  const isDone = tool.output !== null;
  return (
    <details class={`tool ${state === "failed" ? "bad" : ""}`} data-tool={tool.name} data-state={state}>
      <summary>
        <Icon node={Wrench} size={16} />
        <code>{tool.name || "…"}</code>
        <span class="progress" dir="auto">
          {(!isDone && tool.progress) || gist(tool.edited ?? tool.arguments)}
        </span>
        <span class="state">
          {isDone && tool.decision === "allow" && t().approved}
          {t().toolStates[state]}
          {state === "running" && tool.startedAt > 0 && <Elapsed since={tool.startedAt} />}
          {isDone && tool.seconds !== null && tool.seconds >= 0.001 && ` · ${seconds(tool.seconds * 1_000)}`}
          {icon && <Icon node={icon} size={14} />}
        </span>
        <Icon node={ChevronRight} size={14} />
      </summary>
      <p class="part">{t().arguments}</p>
      <div class="call">
        <CallView arguments={tool.arguments} />
      </div>
      {tool.edited && (
        <>
          <p class="part">{t().changedArguments}</p>
          <div class="call" data-edited>
            <CallView arguments={tool.edited} />
          </div>
        </>
      )}
      {!isDone && tool.streamed && (
        <>
          <p class="part">{t().outputSoFar}</p>
          <pre dir="auto" class="streamed" ref={toTheEnd}>
            {tool.streamed}
          </pre>
        </>
      )}
      {isDone && (
        <>
          <p class="part">{state === "failed" ? t().error : t().result}</p>
          <pre dir="auto">{indented(tool.output ?? "")}</pre>
        </>
      )}
    </details>
  );
}

/** The newest line stays in view, unless the reader has scrolled up. */
function toTheEnd(box: HTMLPreElement | null): void {
  if (box && box.scrollHeight - box.scrollTop - box.clientHeight < 80) box.scrollTop = box.scrollHeight;
}

function Elapsed({ since }: { since: number }) {
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 500);
    return () => clearInterval(timer);
  }, []);
  return <> · {seconds(Math.max(0, now - since))}</>;
}

export function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
