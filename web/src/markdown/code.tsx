/** A block of code: as it was written, coloured once it is whole, and copied with one click. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { CopyButton } from "../ui/copy";
import { lazily } from "../ui/lazily";
import { t } from "../words";

/** More than this is shown without colours: a reader who scrolls must not wait for them. */
const LONGEST = 50_000;

interface CodeProps {
  text: string;
  language: string;
  isOpen: boolean;
}

export function CodeBlock({ text, language, isOpen }: CodeProps) {
  const name = /^[\w+#.-]{1,30}/.exec(language)?.[0] ?? "";
  const coloured = useColours(text, name, isOpen);
  return (
    <figure class="code">
      <figcaption>
        <span>{name || t().plainText}</span>
        <CopyButton text={text} label={t().copyCode} />
      </figcaption>
      <pre tabIndex={0} dir="ltr">
        <code>{coloured ?? text}</code>
      </pre>
    </figure>
  );
}

function useColours(text: string, language: string, isOpen: boolean): ComponentChildren {
  const [drawn, setDrawn] = useState<{ text: string; nodes: ComponentChildren } | null>(null);
  useEffect(() => {
    if (isOpen || !language || text.length > LONGEST) return;
    let isCurrent = true;
    lazily(() => import("./highlight")).then(
      ({ highlight }) => {
        if (isCurrent) setDrawn({ text, nodes: highlight(text, language) });
      },
      () => {}, // it stays without colours
    );
    return () => {
      isCurrent = false;
    };
  }, [text, language, isOpen]);
  return drawn?.text === text ? drawn.nodes : null;
}
