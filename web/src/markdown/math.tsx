/** A formula. Until KaTeX and its fonts have come, and where it is none, it is shown as it was written. */
import { useEffect, useRef } from "preact/hooks";

export function Formula({ text, isBlock = false }: { text: string; isBlock?: boolean }) {
  const place = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    let isCurrent = true;
    import("./katex").then(({ drawMath }) => {
      if (isCurrent && place.current) drawMath(text, place.current, isBlock);
    });
    return () => {
      isCurrent = false;
    };
  }, [text, isBlock]);
  return (
    <span class={isBlock ? "math math-block" : "math"} ref={place} dir="ltr">
      {text}
    </span>
  );
}
