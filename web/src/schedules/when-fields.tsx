/** The fields for when a schedule runs, with the plan in words and its next times. */
import { useEffect, useId, useState } from "preact/hooks";
import { s } from "../words/schedules";
import { type PlannedTime, scheduleCalls } from "./calls";
import { inWords, ownZone, REPEATS, type Repeat, timeInZone, type WhenDraft, weekdayName, whenOf } from "./when";

interface WhenFieldsProps {
  draft: WhenDraft;
  onChange: (draft: WhenDraft) => void;
}

export function WhenFields({ draft, onChange }: WhenFieldsProps) {
  const set = (changes: Partial<WhenDraft>) => onChange({ ...draft, ...changes });
  const hasClock = draft.repeat !== "every" && draft.repeat !== "once" && draft.repeat !== "cron";
  return (
    <fieldset class="when">
      <legend>{s().when}</legend>
      <div class="fields">
        <label>
          {s().repeat}
          <select value={draft.repeat} onChange={(event) => set({ repeat: event.currentTarget.value as Repeat })}>
            {REPEATS.map((each) => (
              <option key={each} value={each}>
                {s().repeats[each]}
              </option>
            ))}
          </select>
        </label>
        {draft.repeat === "weekly" && <Weekday draft={draft} set={set} />}
        {draft.repeat === "monthly" && <MonthDay draft={draft} set={set} />}
        {draft.repeat === "every" && <Interval draft={draft} set={set} />}
        {hasClock && (
          <label>
            {s().time}
            <input type="time" required value={draft.time} onInput={(e) => set({ time: e.currentTarget.value })} />
          </label>
        )}
        {draft.repeat === "once" && (
          <label>
            {s().dateAndTime}
            <input
              type="datetime-local"
              name="when.at"
              required
              value={draft.at}
              onInput={(event) => set({ at: event.currentTarget.value })}
            />
          </label>
        )}
        {draft.repeat === "cron" && (
          <label>
            {s().expression}
            <input
              type="text"
              name="when.expression"
              class="mono"
              dir="ltr"
              required
              maxLength={200}
              spellcheck={false}
              value={draft.expression}
              onInput={(event) => set({ expression: event.currentTarget.value })}
            />
          </label>
        )}
        {draft.repeat !== "every" && <Zone draft={draft} set={set} />}
      </div>
      {draft.repeat === "cron" && <p class="note">{s().cronHint}</p>}
      <Preview draft={draft} />
    </fieldset>
  );
}

interface FieldProps {
  draft: WhenDraft;
  set: (changes: Partial<WhenDraft>) => void;
}

function Weekday({ draft, set }: FieldProps) {
  return (
    <label>
      {s().weekday}
      <select value={draft.weekday} onChange={(event) => set({ weekday: event.currentTarget.value })}>
        {["1", "2", "3", "4", "5", "6", "0"].map((day) => (
          <option key={day} value={day}>
            {weekdayName(day)}
          </option>
        ))}
      </select>
    </label>
  );
}

function MonthDay({ draft, set }: FieldProps) {
  return (
    <label>
      {s().dayOfMonth}
      <select value={draft.day} onChange={(event) => set({ day: event.currentTarget.value })}>
        {Array.from({ length: 31 }, (_, index) => String(index + 1)).map((day) => (
          <option key={day} value={day}>
            {day}
          </option>
        ))}
        <option value="L">{s().lastDay}</option>
      </select>
    </label>
  );
}

function Interval({ draft, set }: FieldProps) {
  return (
    <>
      <label>
        {s().number}
        <input
          type="number"
          name="when.seconds"
          min="1"
          step="1"
          required
          value={draft.number}
          onInput={(event) => set({ number: event.currentTarget.value })}
        />
      </label>
      <label>
        {s().unit}
        <select value={draft.unit} onChange={(event) => set({ unit: event.currentTarget.value as WhenDraft["unit"] })}>
          <option value="60">{s().minutes}</option>
          <option value="3600">{s().hours}</option>
          <option value="86400">{s().days}</option>
        </select>
      </label>
    </>
  );
}

function Zone({ draft, set }: FieldProps) {
  const listed = useId();
  const zones = Intl.supportedValuesOf?.("timeZone") ?? [ownZone()];
  return (
    <label>
      {s().timeZone}
      <input
        type="text"
        name="when.time_zone"
        dir="ltr"
        required
        list={listed}
        spellcheck={false}
        value={draft.zone}
        onInput={(event) => set({ zone: event.currentTarget.value.trim() })}
      />
      <datalist id={listed}>
        {zones.map((zone) => (
          <option key={zone} value={zone} />
        ))}
      </datalist>
    </label>
  );
}

type Previewed = { is: "none" } | { is: "times"; times: PlannedTime[] } | { is: "wrong"; why: string };

/** The plan in words, and its next five times; or what is wrong with it. */
function Preview({ draft }: { draft: WhenDraft }) {
  const [shown, setShown] = useState<Previewed>({ is: "none" });
  const when = whenOf(draft);
  const asked = JSON.stringify(when);
  useEffect(() => {
    const leaving = new AbortController();
    const timer = setTimeout(() => {
      if (when.kind === "once" && !when.at) return setShown({ is: "none" });
      scheduleCalls.preview(when, leaving.signal).then(
        ({ times }) => setShown({ is: "times", times }),
        (error: Error) => leaving.signal.aborted || setShown({ is: "wrong", why: error.message }),
      );
    }, 250);
    return () => {
      clearTimeout(timer);
      leaving.abort();
    };
  }, [asked]);
  return (
    <div class="preview" role="status">
      {shown.is === "wrong" && <p class="problem">{shown.why}</p>}
      {shown.is === "times" && (
        <>
          <p>
            <strong>{inWords(when)}</strong>
          </p>
          {shown.times.length ? (
            <p class="note">
              {s().next}{" "}
              {shown.times.map(({ at }) => timeInZone(at, when.kind === "every" ? ownZone() : draft.zone)).join(" · ")}
            </p>
          ) : (
            <p class="note">{s().neverMore}</p>
          )}
        </>
      )}
    </div>
  );
}
