import type { ComponentChildren } from "preact";

/** A sentence with something drawn in the place of `{}`. */
export function filled(sentence: string, part: ComponentChildren): ComponentChildren {
  const [before, after] = sentence.split("{}");
  return [before, part, after];
}
