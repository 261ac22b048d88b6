/** The run in time: how densely its words came, and each thing that happened, on one scale. */
import { useMemo } from "preact/hooks";
import { t } from "../words";
import { seconds } from "../words/time";
import type { RunLog } from "./log";
import { densityOf, type Moment, storyOf } from "./story";

const PARTS = 160;
const LONGEST = 200;

export function Story({ log }: { log: RunLog }) {
  const version = log.version.value;
  const story = useMemo(() => storyOf(log.events, log.at), [version, t()]);
  return (
    <section aria-label={t().timeline}>
      <h2>{t().timeline}</h2>
      <Density log={log} />
      <ol class="story">
        {story.slice(0, LONGEST).map((moment) => (
          <Line key={moment.first} moment={moment} length={log.length} />
        ))}
      </ol>
      {story.length > LONGEST && <p class="note">{t().andMore(story.length - LONGEST)}</p>}
    </section>
  );
}

function Density({ log }: { log: RunLog }) {
  const version = log.version.value;
  const density = useMemo(() => densityOf(log.events, log.at, log.length, PARTS), [version]);
  const highest = Math.max(1, ...density);
  return (
    <figure class="density">
      <svg viewBox={`0 0 ${PARTS} 40`} preserveAspectRatio="none" role="img" aria-label={t().outputRate}>
        {density.map(
          (count, part) =>
            count > 0 && (
              <rect
                key={part}
                x={part + 0.1}
                width="0.8"
                y={40 - (count / highest) * 38}
                height={(count / highest) * 38}
              />
            ),
        )}
      </svg>
      <figcaption>
        <span>0</span>
        <span>{seconds(log.length)}</span>
      </figcaption>
    </figure>
  );
}

function Line({ moment, length }: { moment: Moment; length: number }) {
  const from = (moment.from / length) * 100;
  const width = Math.max(0.6, ((moment.to - moment.from) / length) * 100);
  return (
    <li data-moment={moment.kind}>
      <span class="time">{moment.from === 0 ? "0" : `+${seconds(moment.from)}`}</span>
      <span class="what">
        <strong>{moment.label}</strong> <span dir="auto">{moment.detail.slice(0, 300)}</span>
      </span>
      <svg class="lane" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <rect x={Math.min(from, 100 - width)} width={width} y="2" height="6" />
      </svg>
    </li>
  );
}
