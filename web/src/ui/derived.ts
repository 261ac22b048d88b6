import { computed } from "@preact/signals";
import { useMemo } from "preact/hooks";

/** A value of signals, and of the props in `of`. `useComputed` would keep a value of earlier props. */
export function useDerived<T>(compute: () => T, of: readonly unknown[]): T {
  return useMemo(() => computed(compute), of).value;
}
