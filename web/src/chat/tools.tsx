/** The tools that a model called: what with, how far they are, and what they gave back. */
import { Check, ChevronRight, LoaderCircle, TriangleAlert, Wrench } from "lucide";
import type { ToolActivity } from "../state/live";
import type { Message } from "../types";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { seconds } from "../words/time";
import { textOf } from "./content";

export function toolsOf(message: Message, results: ReadonlyMap<string, Message>): ToolActivity[] {
  return (message.tool_calls ?? []).map(({ id, name, arguments: given }) => ({
    id,
    name,
    arguments: given,
    progress: "",
    output: results.has(id) ? textOf(results.get(id)!.content) : null,
    isError: false,
    seconds: null,
    decision: null,
  }));
}

interface ToolsProps {
  tools: ToolActivity[];
  isGoingOn: boolean;
  /** The calls that a person has to allow before they are made. */
  waiting?: ReadonlySet<string>;
}

export function Tools({ tools, isGoingOn, waiting }: ToolsProps) {
  return tools.map((tool) => (
    <Tool key={tool.id} tool={tool} unfinished={waiting?.has(tool.id) ? "waiting" : isGoingOn ? "running" : "called"} />
  ));
}

function Tool({ tool, unfinished }: { tool: ToolActivity; unfinished: "waiting" | "running" | "called" }) {
  const isDone = tool.output !== null;
  const state = !isDone ? unfinished : tool.decision === "deny" ? "denied" : tool.isError ? "failed" : "done";
  return (
    <details class={`tool ${tool.isError ? "bad" : ""}`} data-tool={tool.name}>
      <summary>
        <Icon node={Wrench} size={16} />
        <code>{tool.name || "…"}</code>
        <span class="progress">{tool.progress}</span>
        <span class="state">
          {isDone && tool.decision === "allow" && t().allowed}
          {t().toolStates[state]}
          {isDone && tool.seconds !== null && tool.seconds >= 0.001 && t().inTime(seconds(tool.seconds * 1_000))}
          {state === "running" && <Icon node={LoaderCircle} size={14} />}
          {state === "done" && <Icon node={Check} size={14} />}
          {(state === "failed" || state === "denied") && <Icon node={TriangleAlert} size={14} />}
        </span>
        <Icon node={ChevronRight} size={14} />
      </summary>
      <h4>{t().arguments}</h4>
      <pre dir="ltr">{indented(tool.arguments)}</pre>
      {isDone && (
        <>
          <h4>{tool.isError ? t().error : t().result}</h4>
          <pre dir="auto">{indented(tool.output ?? "")}</pre>
        </>
      )}
    </details>
  );
}

export function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
