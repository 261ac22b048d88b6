/** A field for JSON: what a person typed, as an object. */
import { t } from "../words";

/** Return the object that a text describes. Throws what is wrong with it, under the name of its field. */
export function objectFrom(text: string, field: string): Record<string, unknown> {
  if (!text.trim()) return {};
  const value = parsed(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(t().notAnObject(field));
  return value as Record<string, unknown>;
}

/** The text of an object; nothing for an empty one. */
export function objectText(value: Record<string, unknown>): string {
  return Object.keys(value).length ? JSON.stringify(value, null, 2) : "";
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
