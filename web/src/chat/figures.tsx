/** What an answer took: its model, its tokens, how soon its first word came, and how fast the rest. */
import { useEffect, useState } from "preact/hooks";
import type { LiveRun } from "../state/live";
import type { Ending, Transcript } from "../state/transcript";

export function SettledFigures({ model, ending }: { model: string | null; ending: Ending | null }) {
  const usage = ending?.settlement.usage;
  const about = usage?.source === "estimated" ? "≈ " : "";
  const parts = [
    ending?.settlement.answered_by ?? model,
    usage && `${about}${usage.output_tokens.toLocaleString()} ${usage.output_tokens === 1 ? "token" : "tokens"}`,
    ending?.firstWordAfter != null && `first word ${seconds(ending.firstWordAfter)}`,
    ending && speed(ending),
  ];
  const title = usage && `${usage.input_tokens} tokens in, ${usage.output_tokens} out (${usage.source})`;
  return <Figures parts={parts} title={title} />;
}

export function LiveFigures({ live }: { live: LiveRun; transcript: Transcript }) {
  live.version.value;
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  const writing = (now - live.firstWordAt) / 1_000;
  const parts = [
    live.model,
    live.firstWordAfter !== null && `first word ${seconds(live.firstWordAfter)}`,
    live.firstWordAt > 0 && !live.joined && writing > 1 && `≈ ${(estimate(live) / writing).toFixed(0)} tokens/s`,
    !live.firstWordAt && now - live.beganAt > 1_500 && `waiting for ${seconds(now - live.beganAt)}`,
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

function speed({ settlement, startedAt, settledAt, firstWordAfter }: Ending): string | null {
  if (!startedAt || !settledAt || settlement.outcome === "interrupted" || settlement.outcome === "failed") return null;
  const about = settlement.usage.source === "estimated" ? "≈ " : "";
  const took = Date.parse(settledAt) - Date.parse(startedAt) - (firstWordAfter ?? 0);
  if (took < 200 || settlement.usage.output_tokens < 5) return null;
  return `${about}${((settlement.usage.output_tokens / took) * 1_000).toFixed(0)} tokens/s`;
}

/** Four characters to a token, as the server estimates where nobody counted. */
function estimate({ text, reasoning }: LiveRun): number {
  return (text.length + reasoning.length) / 4;
}

export function seconds(milliseconds: number): string {
  if (milliseconds < 950) return `${Math.round(milliseconds)} ms`;
  return milliseconds < 9_950 ? `${(milliseconds / 1_000).toFixed(1)} s` : `${Math.round(milliseconds / 1_000)} s`;
}
