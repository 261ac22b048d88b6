/** What became of the times of a schedule: a badge for one, and the list of the last ones. */
import { Dialog } from "../ui/dialog";
import { Shown, useLoaded } from "../ui/loaded";
import { t } from "../words";
import { moment } from "../words/count";
import { s } from "../words/schedules";
import { type Occurrence, type Schedule, scheduleCalls } from "./calls";

export function Became({ of: { state, run } }: { of: Occurrence }) {
  const [kind, told] = describe(state, run);
  return <span class={`badge ${kind}`}>{told}</span>;
}

function describe(state: Occurrence["state"], run: Occurrence["run"]): [string, string] {
  if (state === "refused") return ["bad", s().refused];
  if (state === "skipped") return ["", s().skipped];
  if (!run) return ["", s().begun];
  if (run.status === "deleted") return ["", s().deletedRun];
  if (!run.outcome) return ["", t().statuses[run.status]];
  const kind = run.outcome === "completed" ? "fine" : run.outcome === "failed" ? "bad" : "warning";
  return [kind, t().outcomes[run.outcome]];
}

export function History({ schedule, onClose }: { schedule: Schedule; onClose: () => void }) {
  const loaded = useLoaded(() => scheduleCalls.history(schedule.id), schedule.id);
  return (
    <Dialog title={s().historyOf(schedule.name)} onClose={onClose}>
      <Shown of={loaded}>
        {({ occurrences }) =>
          occurrences.length ? (
            <ul class="occurrences">
              {occurrences.map((one) => (
                <Line key={`${one.at} ${one.how}`} one={one} onLeave={onClose} />
              ))}
            </ul>
          ) : (
            <p class="note empty-list">{s().noHistory}</p>
          )
        }
      </Shown>
      <footer>
        <button type="button" onClick={onClose}>
          {t().close}
        </button>
      </footer>
    </Dialog>
  );
}

function Line({ one, onLeave }: { one: Occurrence; onLeave: () => void }) {
  const notes = [
    one.how === "asked" && s().askedFor,
    one.how === "missed" && s().wasMissed,
    one.others > 0 && s().others(one.others),
    one.error?.message ?? one.why,
  ].filter(Boolean);
  return (
    <li>
      <span>
        {one.session_id ? (
          <a href={`/s/${one.session_id}`} onClick={onLeave}>
            <time dateTime={one.at}>{moment(one.at, "short")}</time>
          </a>
        ) : (
          <time dateTime={one.at}>{moment(one.at, "short")}</time>
        )}{" "}
        <Became of={one} />
      </span>
      {notes.length > 0 && <p class="note">{notes.join(" · ")}</p>}
    </li>
  );
}
