/** The words of accounts, in each language. They come with what they belong to, not with the page. */
import { type Language, t } from "..";
import { people as ar } from "./ar";
import { people as de } from "./de";
import { people as en, type PeopleWords } from "./en";

const ALL: Record<Language, PeopleWords> = { en, de, ar };

/** The words, now. Who draws with them is drawn again when the language changes. */
export function a(): PeopleWords {
  t();
  return ALL[document.documentElement.lang as Language] ?? en;
}
