/** What went wrong with a form: said at once, and tied to the field that it is about. */
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import type { Attempt } from "./attempt";

/** Fields that have another name than the API gives them. */
const ALSO: Record<string, string[]> = { name: ["username"], password: ["current"] };

export function Problem({ of: { problem, field } }: { of: Pick<Attempt, "problem" | "field"> }) {
  const id = useId();
  const place = useRef<HTMLParagraphElement>(null);
  useLayoutEffect(() => {
    const input = problem && field ? inputOf(place.current?.closest("form") ?? null, field) : null;
    if (!input) return;
    const before = input.getAttribute("aria-describedby");
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", before ? `${id} ${before}` : id);
    input.focus();
    return () => {
      input.removeAttribute("aria-invalid");
      if (before) input.setAttribute("aria-describedby", before);
      else input.removeAttribute("aria-describedby");
    };
  }, [problem, field]);
  return (
    <p class="problem" role="alert" id={id} ref={place}>
      {problem}
    </p>
  );
}

function inputOf(form: HTMLFormElement | null, field: string): HTMLInputElement | null {
  const names = [...(ALSO[field] ?? []), field];
  const selector = names.map((name) => `input[name="${CSS.escape(name)}"]:not([hidden])`).join();
  return form?.querySelector<HTMLInputElement>(selector) ?? null;
}
