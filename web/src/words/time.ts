import { t } from ".";

/** Milliseconds below a second, seconds above it. */
export function seconds(milliseconds: number): string {
  if (milliseconds < 950) return t().milliseconds(Math.round(milliseconds));
  return t().seconds(milliseconds / 1_000, milliseconds < 9_950 ? 1 : 0);
}
