/** What an answer took: its model, its tokens, how soon its first word came, and how fast the rest. */
import { useEffect, useState } from "preact/hooks";
import type { Conversation, Ending } from "../state/conversation";
import type { LiveRun } from "../state/live";
import { isLocal, models } from "../state/models";
import type { Figures as Measured, Message, Usage } from "../types";
import { t } from "../words";
import { currency } from "../words/count";
import { seconds } from "../words/time";

interface SettledProps {
  model: string | null;
  /** What the server measured; answers of before it did have only what their run tells. */
  figures?: Measured | undefined;
  ending: Ending | null;
}

export function SettledFigures({ model, figures, ending }: SettledProps) {
  const used = figures ?? (ending && told(ending.settlement.usage));
  const about = used?.usage_source === "estimated" ? "≈ " : "";
  const parts = [
    ending?.settlement.answered_by ?? model,
    used && `${about}${t().tokens(used.output_tokens)}`,
    used?.ttft_ms != null && t().firstToken(seconds(used.ttft_ms)),
    used?.tokens_per_second != null && `${about}${t().tokensPerSecond(used.tokens_per_second)}`,
    used?.cost != null && money(used.cost),
  ];
  return <Figures parts={parts} title={used ? inFull(used) : undefined} />;
}

/** What a response took: in all, or, if several models wrote it, each in its part. */
export function ResponseFigures({ parts, ending }: { parts: readonly Message[]; ending: Ending | null }) {
  const last = parts.at(-1);
  if (modelsOf(parts).length < 2)
    return <SettledFigures model={last?.model ?? null} figures={summed(parts)} ending={ending} />;
  return parts.map((part) => (
    <SettledFigures key={part.id} model={part.model} figures={part.figures} ending={part === last ? ending : null} />
  ));
}

/** The models that wrote a response, each once, in their order. */
export function modelsOf(parts: readonly Message[]): string[] {
  return [...new Set(parts.map(({ model }) => model ?? ""))].filter(Boolean);
}

/** What a response took in all of its parts; nothing if that of one is not known. */
function summed(parts: readonly Message[]): Measured | undefined {
  return parts.map(({ figures }) => figures).reduce((one, other) => one && other && added(one, other));
}

function added(one: Measured, other: Measured): Measured {
  return {
    input_tokens: one.input_tokens + other.input_tokens,
    output_tokens: one.output_tokens + other.output_tokens,
    usage_source: one.usage_source === other.usage_source ? one.usage_source : "estimated",
    ttft_ms: one.ttft_ms,
    duration_ms: sum(one.duration_ms, other.duration_ms),
    tokens_per_second: null,
    cost: sum(one.cost, other.cost),
    thought_ms: sum(one.thought_ms, other.thought_ms),
  };
}

function sum(one: number | null, other: number | null): number | null {
  return one === null || other === null ? null : one + other;
}

function inFull({ input_tokens, output_tokens, usage_source, duration_ms }: Measured): string {
  const tokens = `${t().tokensInOut(input_tokens, output_tokens)} (${t().usageSource[usage_source]})`;
  return duration_ms === null ? tokens : `${tokens}, ${t().took(seconds(duration_ms))}`;
}

function told({ input_tokens, output_tokens, source }: Usage): Measured {
  const unknown = { ttft_ms: null, duration_ms: null, tokens_per_second: null, cost: null, thought_ms: null };
  return { input_tokens, output_tokens, usage_source: source, ...unknown };
}

/** A cost, in the currency of the prices unless told otherwise, with two significant digits. */
export function money(cost: number, code = models.value.currency): string {
  const digits = cost >= 1 || cost === 0 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(cost)));
  return currency(cost, code, digits);
}

export function LiveFigures({ live }: { live: LiveRun; transcript: Conversation }) {
  live.version.value;
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  const writing = (now - live.firstWordAt) / 1_000;
  const isQuiet = !live.isCalling && now - live.heardAt > 1_500;
  const parts = [
    live.model,
    live.open.length
      ? t().toolStates.waiting
      : isQuiet
        ? (isReading(live) ? t().readingPrompt : t().waitingFor)(seconds(now - live.heardAt))
        : live.firstWordAt > 0 && !live.joined && writing > 1 && `≈ ${t().tokensPerSecond(estimate(live) / writing)}`,
  ];
  return <Figures parts={parts} />;
}

function Figures({ parts, title }: { parts: (string | false | null | undefined)[]; title?: string | undefined }) {
  return (
    <span class="figures" title={title}>
      {parts.filter(Boolean).map((part, index) => (
        <span key={index}>{part}</span>
      ))}
    </span>
  );
}

/** Whether a model of one's own machine has not begun yet. */
function isReading({ model, text, reasoning, tools }: LiveRun): boolean {
  return !text && !reasoning && !tools.length && isLocal(model);
}

/** Four characters to a token, as the server estimates where nobody counted. */
function estimate({ text, reasoning }: LiveRun): number {
  return (text.length + reasoning.length) / 4;
}
