/** Triggers: secret addresses that start runs. A secret is shown once, when it is made. */
import { History as HistoryIcon, Pause, Pencil, Plus, RefreshCw, StepForward, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { call } from "../api";
import { Secret } from "../people/secret";
import { complain } from "../state/toasts";
import { Act } from "../ui/act";
import { Confirm } from "../ui/confirm";
import { Dialog } from "../ui/dialog";
import { FormDialog } from "../ui/form-dialog";
import { Icon } from "../ui/icon";
import { type Loaded, Shown, useLoaded } from "../ui/loaded";
import { t } from "../words";
import { moment } from "../words/count";
import { s } from "../words/schedules";
import { AskedFields, askedIn, NOTHING_ASKED } from "./asked-fields";
import { type NewTrigger, scheduleCalls, type Trigger, type TriggerCall, type TriggerWithSecret } from "./calls";

type Open =
  | { is: "new" }
  | { is: "made"; trigger: TriggerWithSecret }
  | { is: "edit" | "delete" | "rotate" | "calls"; trigger: Trigger };

export function Triggers({ of }: { of: Loaded<{ triggers: Trigger[] }> }) {
  const [open, setOpen] = useState<Open | null>(null);
  const close = (closed: Open) => setOpen((now) => (now === closed ? null : now));
  const made = async (trigger: TriggerWithSecret) => {
    setOpen({ is: "made", trigger });
    await of.load();
  };
  return (
    <section aria-labelledby="triggers">
      <h2 id="triggers">{s().triggers}</h2>
      <p class="note">{s().triggersNote}</p>
      <Shown of={of}>
        {({ triggers }) =>
          triggers.length ? (
            <ul class="cards">
              {triggers.map((trigger) => (
                <Line key={trigger.id} trigger={trigger} onOpen={setOpen} onChange={of.load} />
              ))}
            </ul>
          ) : (
            <p class="note empty-list">{s().noTriggers}</p>
          )
        }
      </Shown>
      <button type="button" onClick={() => setOpen({ is: "new" })}>
        <Icon node={Plus} size={16} /> {s().newTrigger}
      </button>
      {open && <Opened open={open} onMade={made} onChange={of.load} onClose={() => close(open)} />}
    </section>
  );
}

interface OpenedProps {
  open: Open;
  onMade: (trigger: TriggerWithSecret) => Promise<void>;
  onChange: () => Promise<void>;
  onClose: () => void;
}

function Opened({ open, onMade, onChange, onClose }: OpenedProps) {
  if (open.is === "new") return <TriggerForm trigger={null} onMade={onMade} onChange={onChange} onClose={onClose} />;
  const { trigger } = open;
  if (open.is === "edit")
    return <TriggerForm trigger={trigger} onMade={onMade} onChange={onChange} onClose={onClose} />;
  if (open.is === "calls") return <Calls trigger={trigger} onClose={onClose} />;
  if (open.is === "made") {
    const { signed, path, secret, name } = open.trigger;
    const address = location.origin + path;
    return (
      <Secret
        title={s().triggerMade(name)}
        note={signed ? s().signedOnce(address) : s().addressOnce}
        label={signed ? s().secret : s().address}
        secret={signed ? secret : address}
        onClose={onClose}
      />
    );
  }
  if (open.is === "rotate") {
    return (
      <Confirm
        title={s().rotateTrigger(trigger.name)}
        action={s().rotate}
        onConfirm={async () => onMade(await scheduleCalls.rotateTrigger(trigger.id))}
        onClose={onClose}
      >
        <p>{s().rotateTriggerWhy}</p>
      </Confirm>
    );
  }
  return (
    <Confirm
      title={s().deleteTrigger(trigger.name)}
      action={t().delete}
      onConfirm={async () => {
        await scheduleCalls.removeTrigger(trigger.id);
        await onChange();
      }}
      onClose={onClose}
    >
      <p>{s().deleteTriggerWhy}</p>
    </Confirm>
  );
}

/** What a client writes of a trigger. */
function written({ name, prompt, model, kind, preset, session, signed, paused }: Trigger): NewTrigger {
  return { name, prompt, model, kind, preset, session, signed, paused };
}

interface LineProps {
  trigger: Trigger;
  onOpen: (open: Open) => void;
  onChange: () => Promise<unknown>;
}

function Line({ trigger, onOpen, onChange }: LineProps) {
  const { id, name, paused, signed, last } = trigger;
  const toggle = () =>
    scheduleCalls
      .changeTrigger(id, { ...written(trigger), paused: !paused })
      .then(onChange)
      .catch(complain);
  return (
    <li data-trigger={name}>
      <div>
        <strong dir="auto">{name}</strong>
        {paused && <span class="badge">{s().paused}</span>}
        {signed && <span class="badge">{s().signed}</span>}
        <p class="note">{last ? s().calledAt(moment(last.at, "short")) : s().neverCalled}</p>
      </div>
      <span class="ends">
        <Act
          icon={paused ? StepForward : Pause}
          label={paused ? s().resume(name) : s().pause(name)}
          title={paused ? s().goOn : t().pause}
          onClick={toggle}
        />
        <Act
          icon={HistoryIcon}
          label={s().callsOf(name)}
          title={s().calls}
          onClick={() => onOpen({ is: "calls", trigger })}
        />
        <Act
          icon={RefreshCw}
          label={s().rotateTrigger(name)}
          title={s().rotate}
          onClick={() => onOpen({ is: "rotate", trigger })}
        />
        <Act
          icon={Pencil}
          label={s().editTrigger(name)}
          title={t().edit}
          onClick={() => onOpen({ is: "edit", trigger })}
        />
        <Act
          icon={Trash2}
          label={s().deleteTrigger(name)}
          title={t().delete}
          onClick={() => onOpen({ is: "delete", trigger })}
        />
      </span>
    </li>
  );
}

/** The last calls, each with its chat or why there is none. */
function Calls({ trigger, onClose }: { trigger: Trigger; onClose: () => void }) {
  const loaded = useLoaded(() => call<{ calls: TriggerCall[] }>("GET", `/api/triggers/${trigger.id}`), trigger.id);
  return (
    <Dialog title={s().callsOf(trigger.name)} onClose={onClose}>
      <Shown of={loaded}>
        {({ calls }) =>
          calls.length ? (
            <ul class="occurrences">
              {calls.map(({ at, run_id, error }, index) => (
                <li key={index}>
                  {run_id ? (
                    <a href={`/runs/${run_id}`} onClick={onClose}>
                      <time dateTime={at}>{moment(at)}</time>
                    </a>
                  ) : (
                    <time dateTime={at}>{moment(at)}</time>
                  )}
                  {error && <p class="note">{error.message}</p>}
                </li>
              ))}
            </ul>
          ) : (
            <p class="note empty-list">{s().neverCalled}</p>
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

interface TriggerFormProps {
  trigger: Trigger | null;
  onMade: (trigger: TriggerWithSecret) => Promise<void>;
  onChange: () => Promise<void>;
  onClose: () => void;
}

function TriggerForm({ trigger, onMade, onChange, onClose }: TriggerFormProps) {
  const before = trigger ?? { ...NOTHING_ASKED, prompt: "{{body}}" };
  const save = async (given: FormData) => {
    const asked = askedIn(given, before);
    if (!trigger) {
      const signed = given.has("signed");
      return onMade(await scheduleCalls.addTrigger({ ...asked, signed, paused: false }));
    }
    await scheduleCalls.changeTrigger(trigger.id, { ...written(trigger), ...asked });
    await onChange();
    onClose();
  };
  return (
    <FormDialog title={trigger ? s().editTrigger(trigger.name) : s().newTrigger} onSave={save} onClose={onClose}>
      <AskedFields asked={before} hint={s().templateHint} />
      {!trigger && (
        <label class="check">
          <input type="checkbox" name="signed" />
          {s().callersSign}
        </label>
      )}
    </FormDialog>
  );
}
