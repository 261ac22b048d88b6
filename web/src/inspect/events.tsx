/** Every event as it was written. Only the rows in sight are drawn, so that a hundred thousand are no trouble. */
import { Download } from "lucide";
import { useState } from "preact/hooks";
import type { RunFrame } from "../types";
import { Icon } from "../ui/icon";
import { saveText } from "../ui/save";
import { t } from "../words";
import type { RunLog } from "./log";

const ROW = 30;
const ROWS = 14;
const MORE = 6;

export function Events({ log }: { log: RunLog }) {
  log.version.value;
  const [top, setTop] = useState(0);
  const [chosen, setChosen] = useState<number | null>(null);
  const first = Math.max(0, Math.floor(top / ROW) - MORE);
  const rows = log.events.slice(first, first + ROWS + 2 * MORE);
  const event = chosen === null ? null : log.events[chosen];
  const save = () => saveText(`${log.id}.jsonl`, log.events.map((each) => JSON.stringify(each)).join("\n"));
  const walk = (pressed: KeyboardEvent) => {
    const step = pressed.key === "ArrowDown" ? 1 : pressed.key === "ArrowUp" ? -1 : 0;
    if (!step) return;
    pressed.preventDefault();
    const to = Math.min(log.events.length - 1, Math.max(0, (chosen ?? -1) + step));
    setChosen(to);
    const place = pressed.currentTarget as HTMLElement;
    if (to * ROW < place.scrollTop) place.scrollTop = to * ROW;
    if ((to + 1) * ROW > place.scrollTop + place.clientHeight) place.scrollTop = (to + 1) * ROW - place.clientHeight;
  };
  return (
    <section aria-label={t().allEvents}>
      <div class="events-title">
        <h2>{t().allEvents}</h2>
        <button type="button" class="small" onClick={save}>
          <Icon node={Download} size={14} /> {t().saveJsonLines}
        </button>
      </div>
      <div
        class="events"
        style={{ maxHeight: `${ROW * ROWS}px` }}
        onScroll={(scrolled) => setTop(scrolled.currentTarget.scrollTop)}
        onKeyDown={walk}
        tabIndex={0}
        role="grid"
        aria-rowcount={log.events.length}
        aria-label={t().events}
      >
        <div style={{ height: `${log.events.length * ROW}px` }} role="rowgroup">
          <div style={{ transform: `translateY(${first * ROW}px)` }} role="presentation">
            {rows.map((each, index) => (
              <div
                key={each.seq}
                role="row"
                aria-rowindex={first + index + 1}
                aria-selected={chosen === first + index}
                class="event"
                style={{ height: `${ROW}px` }}
                onClick={() => setChosen(first + index)}
              >
                <span role="gridcell">{each.seq}</span>
                <span role="gridcell">{clock(log.at[first + index] ?? 0)}</span>
                <span role="gridcell">{each.type}</span>
                <span role="gridcell" class="mono">
                  {bare(each)}
                </span>
              </div>
            ))}
          </div>
        </div>
      </div>
      {event && (
        <pre class="as-written chosen-event" tabIndex={0}>
          {JSON.stringify(event, null, 2)}
        </pre>
      )}
    </section>
  );
}

function clock(milliseconds: number): string {
  return `+${(milliseconds / 1_000).toFixed(3)}`;
}

function bare({ run: _, seq: __, type: ___, ...fields }: RunFrame): string {
  return JSON.stringify(fields).slice(0, 400);
}
