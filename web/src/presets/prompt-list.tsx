/**
 * The prompts that are offered while `/name` is typed in the message box, and the form for a prompt's variables.
 *
 * The focus stays in the box: the arrows walk the list, Enter or Tab takes, Esc closes it.
 */
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { FormDialog } from "../ui/form-dialog";
import { t } from "../words";
import { p } from "../words/presets";
import "../styles/presets.css";
import type { Prompt } from "./calls";
import { asking, dismissed, filledIn, isDismissed, loadPrompts, matching, prompts, take } from "./typed";

const LIST = "prompt-list";

interface PromptListProps {
  box: { readonly current: HTMLTextAreaElement };
  text: string;
  onInsert: (text: string) => void;
}

export default function PromptList({ box, text, onInsert }: PromptListProps) {
  const [at, setAt] = useState(0);
  const [hasFocus, setFocus] = useState(true);
  const found = matching(text);
  const isOpen = hasFocus && !isDismissed(text) && prompts.value !== null && (found.length > 0 || text === "/");
  const active = isOpen ? found[at] : undefined;
  const insert = (whole: string) => {
    asking.value = null;
    onInsert(whole);
    toEnd(box.current);
  };
  useEffect(() => {
    loadPrompts();
    dismissed.value = null;
    return () => {
      asking.value = null;
    };
  }, []);
  useLayoutEffect(() => setAt(0), [text]); // before the next key
  useLayoutEffect(() => tellBox(box.current, isOpen, active ? optionId(at) : null), [isOpen, active, at]);
  useEffect(() => document.getElementById(optionId(at))?.scrollIntoView({ block: "nearest" }), [at]);
  useLayoutEffect(() => {
    const { current: element } = box;
    const onKey = (event: KeyboardEvent) => {
      if (!isOpen || event.isComposing || !handle(event)) return;
      event.preventDefault();
      event.stopImmediatePropagation();
    };
    const onFocus = () => setFocus(document.activeElement === element);
    element.addEventListener("keydown", onKey, true);
    element.addEventListener("focus", onFocus);
    element.addEventListener("blur", onFocus);
    return () => {
      element.removeEventListener("keydown", onKey, true);
      element.removeEventListener("focus", onFocus);
      element.removeEventListener("blur", onFocus);
    };
  });
  const handle = ({ key, shiftKey }: KeyboardEvent): boolean => {
    if (key === "Escape") dismissed.value = text;
    else if (!active || shiftKey) return false;
    else if (key === "ArrowDown") setAt((at + 1) % found.length);
    else if (key === "ArrowUp") setAt((at + found.length - 1) % found.length);
    else if (key === "Enter" || key === "Tab") take(active, insert);
    else return false;
    return true;
  };
  return (
    <div class="above-composer">
      <p class="sr-only" role="status">
        {isOpen && found.length > 0 && p().matches(found.length)}
      </p>
      {isOpen && (
        <div class="prompt-list" onMouseDown={(event) => event.preventDefault()}>
          {found.length > 0 ? (
            <div id={LIST} role="listbox" aria-label={p().prompts}>
              {found.map((prompt, index) => (
                <Option
                  key={prompt.id}
                  id={optionId(index)}
                  prompt={prompt}
                  isActive={index === at}
                  onClick={() => take(prompt, insert)}
                />
              ))}
            </div>
          ) : (
            <p class="note">{p().noPrompts}</p>
          )}
          {text === "/" && (
            <a class="button quiet small" href="/presets">
              {t().managePresets}
            </a>
          )}
        </div>
      )}
      {asking.value && <Variables prompt={asking.value} onInsert={insert} />}
    </div>
  );
}

const optionId = (index: number): string => `${LIST}-${index}`;

/** A text box with a list, for screen readers. */
function tellBox(box: HTMLTextAreaElement, isOpen: boolean, active: string | null): () => void {
  const told: Record<string, string | null> = {
    "aria-autocomplete": isOpen ? "list" : null,
    "aria-haspopup": isOpen ? "listbox" : null,
    "aria-controls": active && LIST,
    "aria-activedescendant": active,
  };
  const set = (name: string, value: string | null) =>
    value === null ? box.removeAttribute(name) : box.setAttribute(name, value);
  for (const [name, value] of Object.entries(told)) set(name, value);
  return () => {
    for (const name of Object.keys(told)) set(name, null);
  };
}

interface OptionProps {
  id: string;
  prompt: Prompt;
  isActive: boolean;
  onClick: () => void;
}

function Option({ id, prompt, isActive, onClick }: OptionProps) {
  return (
    <div id={id} role="option" aria-selected={isActive} class={isActive ? "is-active" : undefined} onClick={onClick}>
      <strong dir="auto">/{prompt.name}</strong>
      <span class="excerpt" dir="auto">
        {prompt.text.slice(0, 120)}
      </span>
      {prompt.by && <small>{p().from(prompt.by)}</small>}
    </div>
  );
}

/** Asks for what stands in the places of a prompt's variables. */
function Variables({ prompt, onInsert }: { prompt: Prompt; onInsert: (text: string) => void }) {
  const close = () => {
    asking.value = null;
  };
  const insert = async (given: FormData) =>
    onInsert(filledIn(prompt, new Map(prompt.variables.map((name) => [name, String(given.get(name) ?? "").trim()]))));
  return (
    <FormDialog title={p().use(prompt.name)} action={p().insert} onSave={insert} onClose={close}>
      {prompt.variables.map((name) => (
        <label key={name}>
          <span dir="auto">{name}</span>
          <textarea name={name} rows={2} dir="auto" onKeyDown={submitOnEnter} />
        </label>
      ))}
    </FormDialog>
  );
}

function submitOnEnter(event: KeyboardEvent): void {
  if (event.isComposing || event.key !== "Enter" || event.shiftKey || matchMedia("(pointer: coarse)").matches) return;
  event.preventDefault();
  (event.currentTarget as HTMLTextAreaElement).form?.requestSubmit();
}

/** Go on typing where the text ends. */
function toEnd(box: HTMLTextAreaElement): void {
  requestAnimationFrame(() => {
    box.focus();
    box.setSelectionRange(box.value.length, box.value.length);
  });
}
