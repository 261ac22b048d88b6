/** The models on offer, searched as one types, chosen with the arrows and Enter. */

import { Check, ChevronDown, Search } from "lucide";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { chooseModel, current, setupForNew } from "../state/current";
import { isDemo, isTest, loadModels, modelForNew, models, modelsState } from "../state/models";
import { Dialog } from "../ui/dialog";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { t } from "../words";

export function ModelPicker() {
  const [isOpen, setOpen] = useState(false);
  const session = current.value?.session.value;
  const chosen = session ? (session.model ?? models.value.default) : (setupForNew.value.model ?? modelForNew.value);
  return (
    <>
      <button
        type="button"
        class="quiet model-button"
        aria-haspopup="dialog"
        title={t().model}
        onClick={() => setOpen(true)}
      >
        <span class="sr-only">{t().modelIs}</span>
        <span class="name">{chosen ?? t().noModel}</span>
        {isDemo(chosen) && <DemoMark />}
        <Icon node={ChevronDown} size={14} />
      </button>
      {isOpen && (
        <ModelDialog chosen={chosen} onChoose={chooseModel} onClose={() => setOpen(false)} title={t().model} />
      )}
    </>
  );
}

interface ModelDialogProps {
  title: string;
  /** For a place where only models can answer. */
  isWithoutAgents?: boolean;
  chosen: string | null;
  onChoose: (model: string) => void;
  onClose: () => void;
}

export function ModelDialog({ title, chosen, onChoose, onClose, isWithoutAgents = false }: ModelDialogProps) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useElement<HTMLDivElement>();
  const box = useElement<HTMLInputElement>();
  const marked = useRef<string | null>(null); // by the arrows: a list that comes late must not move it
  const found = search(text).filter((id) => !isWithoutAgents || !id.startsWith(AGENTS));
  useLayoutEffect(() => {
    if (!matchMedia("(pointer: coarse)").matches) box.current.focus(); // a keyboard would cover the list
    loadModels();
  }, []);
  useEffect(() => {
    const wanted = marked.current ?? (text ? null : chosen);
    setAt(Math.max(0, found.indexOf(wanted ?? "")));
  }, [text, models.value]);
  useEffect(() => list.current.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [at]);
  const choose = (model: string | undefined) => {
    if (!model) return;
    onClose();
    onChoose(model);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      const next = (at + step + found.length) % Math.max(1, found.length);
      marked.current = found[next] ?? null;
      setAt(next);
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
            marked.current = null;
            setText(event.currentTarget.value);
          }}
          onKeyDown={onKeyDown}
        />
      </div>
      <div id="models" role="listbox" aria-label={t().models} ref={list}>
        {groupsOf(found).map(([group, ids]) => (
          <div key={group} role="group" aria-label={GROUPS[group]()}>
            {group !== "models" && (
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
                isChosen={id === chosen}
                onClick={() => choose(id)}
              />
            ))}
          </div>
        ))}
      </div>
      {!found.length && <p class="hint">{nothing(text)}</p>}
      <ProviderProblems />
    </Dialog>
  );
}

/** How the names of agents begin. */
const AGENTS = "agent/";

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
      <span>
        <small>{id.slice(0, id.indexOf("/") + 1)}</small>
        {id.slice(id.indexOf("/") + 1)}
        {isDemo(id) && <DemoMark />}
      </span>
      {isChosen && <Icon node={Check} size={16} />}
    </div>
  );
}

type Group = "models" | "demo" | "test";

const GROUPS: Record<Group, () => string> = {
  models: () => t().models,
  demo: () => t().demoModels,
  test: () => t().testModels,
};

/** Models to work with come first, then demo models, and those that only test a client last. */
function groupOf(id: string): Group {
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

function DemoMark() {
  return (
    <span class="demo-mark" title={t().demoModel}>
      {t().demo}
    </span>
  );
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
  const words = text.toLowerCase().split(/\s+/);
  const found = models.value.models
    .map(({ id }) => id)
    .filter((id) => words.every((word) => id.toLowerCase().includes(word)));
  return groupsOf(found).flatMap(([, ids]) => ids);
}
