/** The run again, at its own pace: or faster, or from anywhere. */
import { Pause, Play } from "lucide";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Reasoning } from "../chat/answer";
import { Markdown } from "../markdown/markdown";
import { Icon } from "../ui/icon";
import { ContinueHere } from "../versions/continue-here";
import { t } from "../words";
import { number } from "../words/count";
import { seconds } from "../words/time";
import type { RunLog } from "./log";
import { lastBy, Words } from "./story";

const SPEEDS = [0.25, 0.5, 1, 2, 5, 10];

export function Replay({ log }: { log: RunLog }) {
  const version = log.version.value;
  const words = useMemo(() => new Words(log.events), [version]);
  const [time, setTime] = useState<number | null>(null);
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const shown = Math.min(time ?? log.length, log.length);
  usePlaying(isPlaying, speed, (step) => {
    setTime((before) => Math.min(log.length, (before ?? 0) + step));
  });
  useEffect(() => {
    if (isPlaying && log.isWhole && shown >= log.length) setPlaying(false);
  }, [shown]);
  const index = lastBy(log.at, shown);
  const { text, thoughts } = words.upTo(index);
  const toggle = () => {
    if (!isPlaying && shown >= log.length) setTime(0);
    setPlaying(!isPlaying);
  };
  return (
    <section class="replay" aria-label={t().replay} data-at={index + 1}>
      <h2>{t().replay}</h2>
      <div class="controls">
        <button type="button" class="round primary" aria-label={isPlaying ? t().pause : t().play} onClick={toggle}>
          <Icon node={isPlaying ? Pause : Play} />
        </button>
        <input
          type="range"
          min="0"
          max={log.length}
          step="1"
          value={shown}
          aria-label={t().time}
          aria-valuetext={t().timeOf(seconds(shown), seconds(log.length))}
          onInput={(event) => setTime(Number(event.currentTarget.value))}
        />
        <span class="clock">
          {seconds(shown)} / {seconds(log.length)}
        </span>
        <select aria-label={t().speed} value={speed} onChange={(event) => setSpeed(Number(event.currentTarget.value))}>
          {SPEEDS.map((each) => (
            <option key={each} value={each}>
              {number(each, each < 1 ? 2 : 0)}×
            </option>
          ))}
        </select>
        {log.run.value && <ContinueHere run={log.run.value} after={log.events[index]?.seq ?? 0} />}
      </div>
      <div class="screen" tabIndex={0} role="region" aria-label={t().responseThen}>
        {thoughts && <Reasoning text={thoughts} isGoingOn={isPlaying && !text} />}
        <Markdown text={text} isStreaming={isPlaying} />
        {!text && !thoughts && <p class="note">{t().noOutput}</p>}
      </div>
    </section>
  );
}

/** Calls back with each frame of the screen, with how much of the run's time has passed. */
function usePlaying(isPlaying: boolean, speed: number, tick: (step: number) => void): void {
  const latest = useRef(tick);
  latest.current = tick;
  useEffect(() => {
    if (!isPlaying) return;
    let before = performance.now();
    let frame = requestAnimationFrame(function step(now) {
      latest.current(Math.max(0, now - before) * speed);
      before = now;
      frame = requestAnimationFrame(step);
    });
    return () => cancelAnimationFrame(frame);
  }, [isPlaying, speed]);
}
