/** Patterns of names, such as `openai/*`, typed between commas or blanks. */

/** Return the patterns in a field; null if there are none. */
export function patternsIn(text: FormDataEntryValue | null): string[] | null {
  const found = String(text ?? "")
    .split(/[\s,]+/)
    .filter(Boolean);
  return found.length ? found : null;
}
