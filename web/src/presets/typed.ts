/** The prompts, as they are called in the message box: by a slash and their name. */
import { signal } from "@preact/signals";
import { complain } from "../state/toasts";
import { type Prompt, presetCalls } from "./calls";

export const prompts = signal<Prompt[] | null>(null);
/** The prompt that asks for its variables. */
export const asking = signal<Prompt | null>(null);
let loading: Promise<void> | null = null;

/** Load them, again each time that a slash is typed. */
export function loadPrompts(): Promise<void> {
  loading ??= presetCalls
    .prompts()
    .then((found) => {
      prompts.value = found.prompts;
    }, complain)
    .finally(() => {
      loading = null;
    });
  return loading;
}

/** The prompts whose names have what was typed after the slash, those first that begin with it. */
export function matching(typed: string): Prompt[] {
  const part = folded(typed.slice(1));
  const found = (prompts.value ?? []).filter(({ name }) => folded(name).includes(part));
  const begins = ({ name }: Prompt) => Number(!folded(name).startsWith(part));
  return found.sort((one, other) => begins(one) - begins(other));
}

/** The prompt with exactly the name that was typed; the person's own comes before one of others. */
async function promptTyped(typed: string): Promise<Prompt | null> {
  if (!prompts.value) await loadPrompts();
  return prompts.value?.find(({ name }) => folded(name) === folded(typed.slice(1))) ?? null;
}

/** What was typed when the list was closed: it is sent as it is. */
export const dismissed = signal<string | null>(null);

export const isDismissed = (typed: string): boolean => dismissed.value !== null && typed.startsWith(dismissed.value);

/** Insert the prompt that was typed, or ask for its variables first. False if there is none of this name. */
export async function takeTyped(typed: string, insert: (text: string) => void): Promise<boolean> {
  const prompt = isDismissed(typed) ? null : await promptTyped(typed);
  if (prompt) take(prompt, insert);
  return prompt !== null;
}

export function take(prompt: Prompt, insert: (text: string) => void): void {
  if (prompt.variables.length) asking.value = prompt;
  else insert(prompt.text);
}

/** The text of a prompt with what was given for its variables. */
export function filledIn({ text }: Prompt, given: ReadonlyMap<string, string>): string {
  return text.replace(/\{\{\s*([^{}]+?)\s*\}\}/g, (whole, name: string) => given.get(name) ?? whole);
}

function folded(name: string): string {
  return name.normalize("NFKC").toLowerCase();
}
