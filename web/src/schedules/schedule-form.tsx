/** Makes a schedule, or changes one. */
import { useState } from "preact/hooks";
import { FormDialog } from "../ui/form-dialog";
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
  const [draft, setDraft] = useState(() => draftOfWhen(schedule?.when ?? null));
  const before = schedule ?? NOTHING_ASKED;
  const save = async (given: FormData) => {
    const body = { ...askedIn(given, before), when: whenOf(draft), missed: given.get("missed") as Missed };
    await (schedule ? scheduleCalls.change(schedule.id, body) : scheduleCalls.add(body));
    await onSaved();
    onClose();
  };
  return (
    <FormDialog title={schedule ? s().editSchedule(schedule.name) : s().newSchedule} onSave={save} onClose={onClose}>
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
    </FormDialog>
  );
}
