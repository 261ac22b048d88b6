/**
 * The page's words, in the language that was chosen. English comes with the page; any other is fetched when it is needed,
 * and where it cannot be had the page speaks English.
 */
import { signal } from "@preact/signals";
import { locale } from "./count";
import { en, type Words } from "./en";

export type Language = "en" | "de" | "ar";
export type Choice = Language | "system";

/** Each language by its own name. */
export const LANGUAGES: [Language, string][] = [
  ["en", "English"],
  ["de", "Deutsch"],
  ["ar", "العربية"],
];
const FETCHED: Record<Exclude<Language, "en">, () => Promise<Words>> = {
  de: () => import("./de").then(({ de }) => de),
  ar: () => import("./ar").then(({ ar }) => ar),
};
const RIGHT_TO_LEFT: ReadonlySet<Language> = new Set(["ar"]);
const KEPT = "holdfast.language";

export const choice = signal<Choice>(asChoice(localStorage.getItem(KEPT)));
const words = signal<Words>(en);

/** The words, now. Who draws with them is drawn again when they change. */
export const t = (): Words => words.value;

export async function choose(value: Choice): Promise<void> {
  choice.value = value;
  if (value === "system") localStorage.removeItem(KEPT);
  else localStorage.setItem(KEPT, value);
  await speak();
}

/** Speak the language that was chosen, or the first that this browser asks for and the page knows. */
export async function speak(): Promise<void> {
  const [language, tag] = wanted();
  const found = language === "en" ? en : await FETCHED[language]().catch(() => null);
  if (wanted()[0] !== language) return; // another was chosen meanwhile
  const spoken = found ? language : "en";
  locale.value = found ? tag : "en";
  words.value = found ?? en;
  document.documentElement.lang = spoken;
  document.documentElement.dir = RIGHT_TO_LEFT.has(spoken) ? "rtl" : "ltr";
}

function wanted(): [Language, string] {
  if (choice.value !== "system") return [choice.value, choice.value];
  for (const tag of navigator.languages) {
    const known = asChoice(tag.split("-")[0] ?? "");
    if (known !== "system") return [known, tag];
  }
  return ["en", "en"];
}

function asChoice(value: string | null): Choice {
  return LANGUAGES.find(([language]) => language === value)?.[0] ?? "system";
}
