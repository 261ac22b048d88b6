/** Makes a preset, or changes one: its name, model, system prompt and parameters, and who may use it. */
import { useEffect, useId, useState } from "preact/hooks";
import { draftOf, SetupFields, valuesOf } from "../chat/setup-fields";
import { models } from "../state/models";
import { defaultPreset, loadPresets } from "../state/presets";
import { complain, toast } from "../state/toasts";
import type { GroupName } from "../types";
import { FormDialog } from "../ui/form-dialog";
import { t } from "../words";
import { p } from "../words/presets";
import { type Preset, presetCalls } from "./calls";

interface PresetFormProps {
  preset: Pick<Preset, "name" | "model" | "system" | "params" | "on_break"> & Partial<Preset>;
  onSaved: (preset: Preset) => void;
  onClose: () => void;
}

export default function PresetForm({ preset, onSaved, onClose }: PresetFormProps) {
  const [draft, setDraft] = useState(() => draftOf(preset));
  const [groups, setGroups] = useState<GroupName[]>([]);
  const listed = useId();
  const { id } = preset;
  useEffect(() => {
    presetCalls.presets().then((found) => setGroups(found.groups), complain);
  }, []);
  const save = async (given: FormData) => {
    const text = (name: string) => String(given.get(name) ?? "").trim();
    const body = { name: text("name"), model: text("model") || null, group: text("group"), ...valuesOf(draft) };
    const saved = await (id ? presetCalls.changePreset(id, body) : presetCalls.addPreset(body));
    const wasDefault = id !== undefined && id === defaultPreset.peek();
    const isDefault = given.has("default");
    if (isDefault !== wasDefault) await presetCalls.setDefault(isDefault ? saved.id : null);
    await loadPresets();
    if (!id) toast(p().saved(saved.name));
    onSaved(saved);
    onClose();
  };
  return (
    <FormDialog title={id ? p().editPreset(preset.name) : p().newPreset} onSave={save} onClose={onClose}>
      <div class="fields">
        <label>
          {t().name}
          <input type="text" name="name" dir="auto" required maxLength={64} defaultValue={preset.name} />
        </label>
        <label>
          {p().modelBlank}
          <input
            type="text"
            name="model"
            dir="ltr"
            list={listed}
            spellcheck={false}
            defaultValue={preset.model ?? ""}
          />
        </label>
      </div>
      <datalist id={listed}>
        {models.value.models.map((model) => (
          <option key={model.id} value={model.id} />
        ))}
      </datalist>
      <SetupFields draft={draft} model={preset.model} onChange={setDraft} />
      <SharedWith groups={groups} group={preset.group ?? null} />
      <label class="check">
        <input type="checkbox" name="default" defaultChecked={id !== undefined && id === defaultPreset.peek()} />
        {p().usedForNew}
      </label>
    </FormDialog>
  );
}

/** The group that may use it too. Who is in no group is not asked. */
export function SharedWith({ groups, group }: { groups: GroupName[]; group: string | null }) {
  if (!groups.length) return null;
  return (
    <label>
      {p().sharedWith}
      <select name="group" key={groups.length}>
        <option value="">{p().onlyYou}</option>
        {groups.map(({ id, name }) => (
          <option key={id} value={id} selected={id === group}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
