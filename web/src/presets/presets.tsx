/** The list of presets: the person's own, and those that others share. */
import { Pencil, Plus, Star, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { isGuest } from "../state/caller";
import { defaultPreset } from "../state/presets";
import { complain } from "../state/toasts";
import { Confirm } from "../ui/confirm";
import { Icon } from "../ui/icon";
import { type Loaded, Shown } from "../ui/loaded";
import { t } from "../words";
import { p } from "../words/presets";
import { type Preset, presetCalls } from "./calls";
import PresetForm from "./preset-form";

const BLANK = { name: "", model: null, system: null, params: {}, on_break: null };

type Open = { is: "new" } | { is: "edit" | "delete"; preset: Preset };

interface PresetsProps {
  of: Loaded<{ presets: Preset[] }>;
  onChange: () => Promise<unknown>;
}

export function Presets({ of, onChange }: PresetsProps) {
  const [open, setOpen] = useState<Open | null>(null);
  const close = () => setOpen(null);
  return (
    <section aria-labelledby="presets">
      <h2 id="presets">{p().presets}</h2>
      <p class="note">{p().presetsNote}</p>
      <Shown of={of}>
        {({ presets }) =>
          presets.length ? (
            <ul class="cards">
              {presets.map((preset) => (
                <Line key={preset.id} preset={preset} onOpen={setOpen} onChange={onChange} />
              ))}
            </ul>
          ) : (
            <p class="note empty-list">{p().noPresets}</p>
          )
        }
      </Shown>
      {!isGuest.value && (
        <button type="button" onClick={() => setOpen({ is: "new" })}>
          <Icon node={Plus} size={16} /> {p().newPreset}
        </button>
      )}
      {open?.is === "new" && <PresetForm preset={BLANK} onSaved={onChange} onClose={close} />}
      {open?.is === "edit" && <PresetForm preset={open.preset} onSaved={onChange} onClose={close} />}
      {open?.is === "delete" && (
        <Confirm
          title={p().deletePreset(open.preset.name)}
          action={t().delete}
          onConfirm={async () => {
            await presetCalls.deletePreset(open.preset.id);
            await onChange();
          }}
          onClose={close}
        >
          <p>{p().deletePresetWhy}</p>
        </Confirm>
      )}
    </section>
  );
}

interface LineProps {
  preset: Preset;
  onOpen: (open: Open) => void;
  onChange: () => Promise<unknown>;
}

function Line({ preset, onOpen, onChange }: LineProps) {
  const { id, name, model, system, own } = preset;
  const isDefault = id === defaultPreset.value;
  const label = isDefault ? p().endDefault(name) : p().makeDefault(name);
  const toggle = () =>
    presetCalls
      .setDefault(isDefault ? null : id)
      .then(onChange)
      .catch(complain);
  return (
    <li data-preset={name}>
      <div>
        <strong dir="auto">{name}</strong>
        {isDefault && <span class="badge">{p().isDefault}</span>}
        <Sharing of={preset} />
        <p class="note excerpt" dir="auto">
          {[model, system].filter(Boolean).join(" · ") || t().defaultValue}
        </p>
      </div>
      <span class="ends">
        <button
          type="button"
          class={`quiet icon-button ${isDefault ? "is-set" : ""}`}
          aria-label={label}
          title={label}
          aria-pressed={isDefault}
          onClick={toggle}
        >
          <Icon node={Star} size={16} />
        </button>
        {own && (
          <Change
            edit={p().editPreset(name)}
            remove={p().deletePreset(name)}
            onEdit={() => onOpen({ is: "edit", preset })}
            onDelete={() => onOpen({ is: "delete", preset })}
          />
        )}
      </span>
    </li>
  );
}

/** With whom the person shares it, or who shares it with the person. */
export function Sharing({ of: { by, group, group_name } }: { of: Pick<Preset, "by" | "group" | "group_name"> }) {
  if (by) return <span class="badge">{p().from(by)}</span>;
  if (!group) return null;
  return <span class="badge">{group_name === null ? p().goneGroup : p().withGroup(group_name)}</span>;
}

interface ChangeProps {
  edit: string;
  remove: string;
  onEdit: () => void;
  onDelete: () => void;
}

/** The buttons with which its owner changes and deletes it. */
export function Change({ edit, remove, onEdit, onDelete }: ChangeProps) {
  return (
    <>
      <button type="button" class="quiet icon-button" aria-label={edit} title={t().edit} onClick={onEdit}>
        <Icon node={Pencil} size={16} />
      </button>
      <button type="button" class="quiet icon-button" aria-label={remove} title={t().delete} onClick={onDelete}>
        <Icon node={Trash2} size={16} />
      </button>
    </>
  );
}
