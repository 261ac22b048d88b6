/** A part of the page that is loaded when it is shown for the first time. */
import type { ComponentType } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import { complain } from "../state/toasts";
import { lazily } from "./lazily";

type Load<Props> = () => Promise<{ default: ComponentType<Props> }>;

export function Later<Props extends object>({ load, ...props }: Props & { load: Load<Props> }) {
  const [Part, setPart] = useState<ComponentType<Props> | null>(null);
  useLayoutEffect(() => {
    lazily(load).then((module) => setPart(() => module.default), complain);
  }, [load]);
  return Part && <Part {...(props as unknown as Props)} />;
}
