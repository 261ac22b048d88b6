/** Footnotes: a mark leads to what is said there, and back. A mark without a note stays as it was written. */
import type { Token } from "marked";
import { type ComponentChildren, createContext } from "preact";
import { useContext, useId, useMemo } from "preact/hooks";
import { t } from "../words";
import { isFootnote } from "./footnote-syntax";

interface Notes {
  /** Unlike those of any other text on the page. */
  name: string;
  /** The labels of the notes, in their order. */
  labels: string[];
}

const Noted = createContext<Notes>({ name: "", labels: [] });

/** Numbers the notes of a text for its marks, which may have been drawn before. */
export function WithFootnotes({ tokens, children }: { tokens: Token[]; children: ComponentChildren }) {
  const name = useId();
  const labels = tokens.filter(isFootnote).map(({ label }) => label);
  const notes = useMemo(() => ({ name, labels }), [name, labels.join("\n")]);
  return <Noted.Provider value={notes}>{children}</Noted.Provider>;
}

export function FootnoteMark({ label, raw }: { label: string; raw: string }) {
  const { name, labels } = useContext(Noted);
  const n = labels.indexOf(label) + 1;
  if (!n) return raw;
  return (
    <sup>
      <button
        type="button"
        class="link"
        data-mark={`${name}${n}`}
        aria-label={t().footnote(n)}
        onClick={() => focusOn(`[data-note="${name}${n}"]`)}
      >
        {n}
      </button>
    </sup>
  );
}

export function FootnoteText({ label, children }: { label: string; children: ComponentChildren }) {
  const { name, labels } = useContext(Noted);
  const n = labels.indexOf(label) + 1;
  return (
    <p class="footnote" dir="auto">
      <button
        type="button"
        class="link"
        data-note={`${name}${n}`}
        aria-label={t().backToText(n)}
        onClick={() => focusOn(`[data-mark="${name}${n}"]`)}
      >
        {n}
      </button>{" "}
      {children}
    </p>
  );
}

function focusOn(selector: string): void {
  document.querySelector<HTMLElement>(selector)?.focus();
}
