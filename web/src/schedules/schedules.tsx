/** The list of schedules: what runs when, what became of the last time, and what can be done with each. */
import { History as HistoryIcon, Pause, Pencil, Play, Plus, StepForward, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { navigate } from "../router";
import { complain } from "../state/toasts";
import { Act } from "../ui/act";
import { Confirm } from "../ui/confirm";
import { Icon } from "../ui/icon";
import { type Loaded, Shown } from "../ui/loaded";
import { t } from "../words";
import { moment } from "../words/count";
import { s } from "../words/schedules";
import { type Schedule, scheduleCalls } from "./calls";
import { Became, History } from "./occurrences";
import { ScheduleForm } from "./schedule-form";
import { inWords } from "./when";

type Open = { is: "new" } | { is: "edit" | "delete" | "history"; schedule: Schedule };

interface SchedulesProps {
  of: Loaded<{ schedules: Schedule[] }>;
}

export function Schedules({ of }: SchedulesProps) {
  const [open, setOpen] = useState<Open | null>(null);
  const close = () => setOpen(null);
  return (
    <section aria-labelledby="schedules">
      <h2 id="schedules">{s().schedules}</h2>
      <p class="note">{s().schedulesNote}</p>
      <Shown of={of}>
        {({ schedules }) =>
          schedules.length ? (
            <ul class="cards">
              {schedules.map((schedule) => (
                <Line key={schedule.id} schedule={schedule} onOpen={setOpen} onChange={of.load} />
              ))}
            </ul>
          ) : (
            <p class="note empty-list">{s().noSchedules}</p>
          )
        }
      </Shown>
      <button type="button" onClick={() => setOpen({ is: "new" })}>
        <Icon node={Plus} size={16} /> {s().newSchedule}
      </button>
      {open?.is === "new" && <ScheduleForm schedule={null} onSaved={of.load} onClose={close} />}
      {open?.is === "edit" && <ScheduleForm schedule={open.schedule} onSaved={of.load} onClose={close} />}
      {open?.is === "history" && <History schedule={open.schedule} onClose={close} />}
      {open?.is === "delete" && (
        <Confirm
          title={s().deleteSchedule(open.schedule.name)}
          action={t().delete}
          onConfirm={async () => {
            await scheduleCalls.remove(open.schedule.id);
            await of.load();
          }}
          onClose={close}
        >
          <p>{s().deleteScheduleWhy}</p>
        </Confirm>
      )}
    </section>
  );
}

interface LineProps {
  schedule: Schedule;
  onOpen: (open: Open) => void;
  onChange: () => Promise<unknown>;
}

function Line({ schedule, onOpen, onChange }: LineProps) {
  const { id, name, paused, next, last } = schedule;
  const [isBusy, setBusy] = useState(false);
  const act = (what: () => Promise<unknown>) => {
    setBusy(true);
    what()
      .catch(complain)
      .finally(() => setBusy(false));
  };
  const run = async () => {
    const { session_id } = await scheduleCalls.run(id, crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`);
    await onChange();
    if (session_id) navigate(`/s/${session_id}`);
  };
  const toggle = async () => {
    await (paused ? scheduleCalls.resume(id) : scheduleCalls.pause(id));
    await onChange();
  };
  return (
    <li data-schedule={name}>
      <div>
        <strong dir="auto">{name}</strong>
        {paused && <span class="badge">{s().paused}</span>}
        <p class="note">
          {inWords(schedule.when)}
          {next && ` · ${s().nextAt(moment(next.at, "short"))}`}
          {!next && !paused && ` · ${s().done}`}
        </p>
        {last && (
          <p class="note">
            {s().lastAt(moment(last.at, "short"))} <Became of={last} />
          </p>
        )}
      </div>
      <span class="ends">
        <Act icon={Play} label={s().runNow(name)} title={s().run} isDisabled={isBusy} onClick={() => act(run)} />
        <Act
          icon={paused ? StepForward : Pause}
          label={paused ? s().resume(name) : s().pause(name)}
          title={paused ? s().goOn : t().pause}
          isDisabled={isBusy}
          onClick={() => act(toggle)}
        />
        <Act
          icon={HistoryIcon}
          label={s().historyOf(name)}
          title={t().history}
          onClick={() => onOpen({ is: "history", schedule })}
        />
        <Act
          icon={Pencil}
          label={s().editSchedule(name)}
          title={t().edit}
          onClick={() => onOpen({ is: "edit", schedule })}
        />
        <Act
          icon={Trash2}
          label={s().deleteSchedule(name)}
          title={t().delete}
          onClick={() => onOpen({ is: "delete", schedule })}
        />
      </span>
    </li>
  );
}
