/** Numbers, times and plurals, as the language that is chosen writes them. */
import { signal } from "@preact/signals";

export const locale = signal("en");

export type Forms = Partial<Record<Intl.LDMLPluralRule, string>> & { other: string };

/** So many of something: `count(2, {one: "# token", other: "# tokens"})`. */
export function count(n: number, forms: Forms): string {
  const form = forms[new Intl.PluralRules(locale.value).select(n)] ?? forms.other;
  return form.replace("#", number(n));
}

export function number(n: number, digits = 0): string {
  return new Intl.NumberFormat(locale.value, { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(
    n,
  );
}

/** A size in bytes, in the unit that people would say. */
export function bytes(n: number): string {
  const [unit, size] = n < 1000 ? ["byte", n] : n < 1_000_000 ? ["kilobyte", n / 1000] : ["megabyte", n / 1_000_000];
  const maximumFractionDigits = size < 10 && n >= 1000 ? 1 : 0;
  return new Intl.NumberFormat(locale.value, {
    style: "unit",
    unit,
    unitDisplay: n < 1000 ? "long" : "short",
    maximumFractionDigits,
  }).format(size);
}

/** An amount of money, with its currency's sign. */
export function currency(amount: number, code: string, digits: number): string {
  const fraction = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return new Intl.NumberFormat(locale.value, {
    style: "currency",
    currency: code,
    currencyDisplay: "narrowSymbol",
    ...fraction,
  }).format(amount);
}

export function percent(share: number): string {
  return new Intl.NumberFormat(locale.value, { style: "percent" }).format(share);
}

export function moment(at: string | number, timeStyle: "short" | "medium" = "medium"): string {
  const told = new Date(at).toLocaleString(locale.value, { dateStyle: "medium", timeStyle });
  return locale.value.startsWith("ar") ? `\u2068${told}\u2069` : told; // beside a Latin name its parts would change places
}

export function clock(at: string | number): string {
  return new Date(at).toLocaleTimeString(locale.value, { timeStyle: "medium" });
}

export function month(at: Date): string {
  return at.toLocaleDateString(locale.value, { month: "long", year: "numeric" });
}
