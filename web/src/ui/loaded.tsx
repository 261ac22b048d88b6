/** What a view has asked the server for: on its way, here, or failed with a way to ask again. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../words";

type State<T> = { is: "loading" } | { is: "ready"; value: T } | { is: "failed"; problem: string };

export interface Loaded<T> {
  state: State<T>;
  load: () => Promise<void>;
}

/**
 * Ask now, again whenever `asked` changes, and every so many milliseconds while the page is seen. The answer to an
 * earlier question is dropped.
 */
export function useLoaded<T>(ask: () => Promise<T>, asked: unknown = null, every = 0): Loaded<T> {
  const [state, setState] = useState<State<T>>({ is: "loading" });
  const newest = useRef(0);
  const look = async (isRepeated: boolean) => {
    const mine = ++newest.current;
    const next = await ask().then(ready<T>, failed);
    if (mine === newest.current && !(isRepeated && next.is === "failed")) setState(next);
  };
  const load = () => look(false);
  useEffect(() => {
    load();
    return () => {
      newest.current++;
    };
  }, [asked]);
  useEffect(() => {
    const timer = every && setInterval(() => !document.hidden && look(true), every);
    return () => clearInterval(timer);
  }, [asked, every]);
  return { state, load };
}

function ready<T>(value: T): State<T> {
  return { is: "ready", value };
}

function failed(error: Error): State<never> {
  return { is: "failed", problem: error.message };
}

interface ShownProps<T> {
  of: Loaded<T>;
  children: (value: T) => ComponentChildren;
}

export function Shown<T>({ of: { state, load }, children }: ShownProps<T>) {
  if (state.is === "ready") return <>{children(state.value)}</>;
  if (state.is === "loading") return <output class="loading" aria-label={t().loading} />;
  return (
    <div class="failed" role="alert">
      <p class="problem">{state.problem}</p>
      <button type="button" class="small" onClick={load}>
        {t().tryAgain}
      </button>
    </div>
  );
}
