/** The models on offer and the presets, searched as one types, chosen with the arrows and Enter. */

import { Check, Search } from "lucide";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { Preset } from "../presets/calls";
import { isDemo, isTest, loadModels, models, modelsState } from "../state/models";
import { loadPresets, presets } from "../state/presets";
import { Dialog } from "../ui/dialog";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { t } from "../words";

interface ModelDialogProps {
  title: string;
  chosen: string | null;
  onChoose: (model: string) => void;
  /** The name of the preset in use, for a place where one can be chosen too. */
  preset?: string | null;
  onChoosePreset?: (preset: Preset | null) => void;
  onClose: () => void;
}

export function ModelDialog(props: ModelDialogProps) {
  const { title, chosen, onChoose, preset = null, onChoosePreset, onClose } = props;
  const [text, setText] = useState("");
  const [marked, setMarked] = useState<string | null>(null); // by the arrows: a list that comes late does not move it
  const list = useElement<HTMLDivElement>();
  const box = useElement<HTMLInputElement>();
  const found = [...(onChoosePreset ? searchPresets(text, preset) : []), ...search(text)];
  const at = Math.max(0, found.indexOf(marked ?? (text ? "" : (chosen ?? ""))));
  useLayoutEffect(() => {
    if (!matchMedia("(pointer: coarse)").matches) box.current.focus(); // a keyboard would cover the list
    loadModels();
    if (onChoosePreset) loadPresets();
  }, []);
  useEffect(() => list.current.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [at]);
  const choose = (model: string | undefined) => {
    if (!model) return;
    onClose();
    if (model.startsWith(PRESET)) onChoosePreset?.(presetOf(model) ?? null);
    else onChoose(model);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setMarked(found[(at + step + found.length) % Math.max(1, found.length)] ?? null);
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(found[at] ?? (text.includes("/") ? text.trim() : undefined));
    }
  };
  return (
    <Dialog title={title} onClose={onClose} class="models">
      <div class="search">
        <Icon node={Search} size={16} />
        <input
          type="text"
          ref={box}
          list={undefined}
          role="combobox"
          aria-expanded="true"
          aria-controls="models"
          aria-activedescendant={found[at] ? `model-${at}` : undefined}
          aria-label={t().searchModels}
          placeholder={t().searchModels}
          value={text}
          onInput={(event) => {
            setMarked(null);
            setText(event.currentTarget.value);
          }}
          onKeyDown={onKeyDown}
        />
      </div>
      <div id="models" role="listbox" aria-label={t().models} ref={list}>
        {groupsOf(found).map(([group, ids]) => (
          <div key={group} role="group" aria-label={GROUPS[group]()}>
            {(group !== "models" || found[0]?.startsWith(PRESET)) && (
              <div class="group-name" aria-hidden="true">
                {GROUPS[group]()}
              </div>
            )}
            {ids.map((id) => (
              <Option
                key={id}
                id={id}
                index={found.indexOf(id)}
                isActive={id === found[at]}
                isChosen={id === chosen || (preset !== null && presetOf(id)?.name === preset)}
                onClick={() => choose(id)}
              />
            ))}
          </div>
        ))}
      </div>
      {!found.length && <p class="hint">{nothing(text)}</p>}
      {onChoosePreset && presets.value.length > 0 && (
        <a class="button quiet small" href="/presets">
          {t().managePresets}
        </a>
      )}
      <ProviderProblems />
    </Dialog>
  );
}

/** How the list names presets: no provider has a colon in its name. With nothing after it, no preset. */
const PRESET = "preset:";

const presetOf = (id: string): Preset | undefined => presets.value.find((each) => id === PRESET + each.id);

interface OptionProps {
  id: string;
  index: number;
  isActive: boolean;
  isChosen: boolean;
  onClick: () => void;
}

function Option({ id, index, isActive, isChosen, onClick }: OptionProps) {
  return (
    <div
      id={`model-${index}`}
      role="option"
      aria-selected={isActive}
      class={isActive ? "is-active" : undefined}
      onClick={onClick}
    >
      {id.startsWith(PRESET) ? <PresetName preset={presetOf(id)} /> : <Name id={id} />}
      {isChosen && <Icon node={Check} size={16} />}
    </div>
  );
}

function Name({ id }: { id: string }) {
  return (
    <span>
      <small>{id.slice(0, id.indexOf("/") + 1)}</small>
      {id.slice(id.indexOf("/") + 1)}
      {isDemo(id) && <DemoMark />}
    </span>
  );
}

function PresetName({ preset }: { preset: Preset | undefined }) {
  if (!preset) return <span>{t().noPreset}</span>;
  return (
    <span>
      <bdi>{preset.name}</bdi> <small>{[preset.model, preset.by].filter(Boolean).join(" · ")}</small>
    </span>
  );
}

type Group = "presets" | "models" | "demo" | "test";

const GROUPS: Record<Group, () => string> = {
  presets: () => t().presets,
  models: () => t().models,
  demo: () => t().demoModels,
  test: () => t().testModels,
};

/** Models to work with come first, then demo models, and those that only test a client last. */
function groupOf(id: string): Group {
  if (id.startsWith(PRESET)) return "presets";
  if (!isDemo(id)) return "models";
  return isTest(id) ? "test" : "demo";
}

function groupsOf(ids: string[]): [Group, string[]][] {
  const groups = (Object.keys(GROUPS) as Group[]).map((group): [Group, string[]] => [
    group,
    ids.filter((id) => groupOf(id) === group),
  ]);
  return groups.filter(([, each]) => each.length);
}

function ProviderProblems() {
  const failing = models.value.providers.filter(({ ok, pending }) => !ok && !pending);
  return failing.map(({ name, why }) => (
    <p class="hint" key={name}>
      {why ?? t().notConnected(name)}
    </p>
  ));
}

function nothing(text: string): string {
  if (modelsState.value === "loading") return t().loadingModels;
  if (modelsState.value === "failed") return t().modelsFailed;
  if (!text.trim()) return t().noneListed;
  return text.includes("/") ? t().useAnyway(text.trim()) : t().noSuchModel;
}

/** Every word that was typed is somewhere in the name. */
function search(text: string): string[] {
  const found = models.value.models.map(({ id }) => id).filter((id) => has(id, text));
  return groupsOf(found).flatMap(([, ids]) => ids);
}

/** The presets with these words. Where one is in use, no preset is a choice too. */
function searchPresets(text: string, used: string | null): string[] {
  const found = presets.value.filter(({ name, by }) => has(`${name} ${by ?? ""}`, text));
  return [...(used && !text ? [""] : []), ...found.map(({ id }) => id)].map((id) => PRESET + id);
}

function has(name: string, text: string): boolean {
  const words = text.toLowerCase().split(/\s+/);
  return words.every((word) => name.toLowerCase().includes(word));
}

export function DemoMark() {
  return (
    <span class="demo-mark" title={t().demoModel}>
      {t().demo}
    </span>
  );
}
