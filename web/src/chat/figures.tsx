/** What an answer took: its model, its tokens, how soon its first word came, and how fast the rest. */
import { useEffect, useState } from "preact/hooks";
import type { LiveRun } from "../state/live";
import type { Ending, Transcript } from "../state/transcript";
import type { Figures as Measured, Usage } from "../types";

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
    used && `${about}${used.output_tokens.toLocaleString()} ${used.output_tokens === 1 ? "token" : "tokens"}`,
    used?.ttft_ms != null && `first word ${seconds(used.ttft_ms)}`,
    used?.tokens_per_second != null && `${about}${used.tokens_per_second.toFixed(0)} tokens/s`,
    used?.cost != null && `cost ${money(used.cost)}`,
  ];
  const took = used?.duration_ms == null ? "" : `, took ${seconds(used.duration_ms)}`;
  const title = used && `${used.input_tokens} tokens in, ${used.output_tokens} out (${used.usage_source})${took}`;
  return <Figures parts={parts} title={title ?? undefined} />;
}

function told({ input_tokens, output_tokens, source }: Usage): Measured {
  const unknown = { ttft_ms: null, duration_ms: null, tokens_per_second: null, cost: null };
  return { input_tokens, output_tokens, usage_source: source, ...unknown };
}

/** In whatever currency the prices of the settings are: two digits of it that say something. */
function money(cost: number): string {
  return cost >= 1 || cost === 0 ? cost.toFixed(2) : cost.toFixed(Math.min(8, 1 - Math.floor(Math.log10(cost))));
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

/** Four characters to a token, as the server estimates where nobody counted. */
function estimate({ text, reasoning }: LiveRun): number {
  return (text.length + reasoning.length) / 4;
}

export function seconds(milliseconds: number): string {
  if (milliseconds < 950) return `${Math.round(milliseconds)} ms`;
  return milliseconds < 9_950 ? `${(milliseconds / 1_000).toFixed(1)} s` : `${Math.round(milliseconds / 1_000)} s`;
}
