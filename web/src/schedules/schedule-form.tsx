/** Makes a schedule, or changes one. */
import { useState } from "preact/hooks";
import { useAttempt } from "../ui/attempt";
import { Dialog } from "../ui/dialog";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { s } from "../words/schedules";
import { AskedFields, askedIn, NOTHING_ASKED } from "./asked-fields";
import { type Missed, type Schedule, scheduleCalls } from "./calls";
import { draftOfWhen, whenOf } from "./when";
import { WhenFields } from "./when-fields";

const MISSED: Missed[] = ["one", "skip", "all"];

interface ScheduleFormProps {
  schedule: Schedule | null;
  onSaved: () => Promise<unknown>;
  onClose: () => void;
}

export function ScheduleForm({ schedule, onSaved, onClose }: ScheduleFormProps) {
  const trying = useAttempt();
  const [draft, setDraft] = useState(() => draftOfWhen(schedule?.when ?? null));
  const before = schedule ?? NOTHING_ASKED;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    trying.attempt(async () => {
      const missed = new FormData(form).get("missed") as Missed;
      const body = { ...askedIn(form, before), when: whenOf(draft), missed };
      await (schedule ? scheduleCalls.change(schedule.id, body) : scheduleCalls.add(body));
      await onSaved();
      onClose();
    });
  };
  return (
    <Dialog title={schedule ? s().editSchedule(schedule.name) : s().newSchedule} onClose={onClose}>
      <form onSubmit={submit} autocomplete="off">
        <AskedFields asked={before} />
        <WhenFields draft={draft} onChange={setDraft} />
        <label>
          {s().ifMissed}
          <select name="missed">
            {MISSED.map((each) => (
              <option key={each} value={each} selected={each === (schedule?.missed ?? "one")}>
                {s().missed[each]}
              </option>
            ))}
          </select>
        </label>
        <Problem of={trying} />
        <footer>
          <button type="button" onClick={onClose}>
            {t().cancel}
          </button>
          <button type="submit" class="primary" disabled={trying.isBusy}>
            {t().save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
