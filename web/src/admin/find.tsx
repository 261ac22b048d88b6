/** Finds people by parts of their names or e-mail addresses. */

import { useEffect, useState } from "preact/hooks";
import { a } from "../words/people";

export function Find({ onFind }: { onFind: (name: string) => void }) {
  const [text, setText] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => onFind(text.trim()), 250);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <input
      type="search"
      class="grows"
      dir="auto"
      aria-label={a().findPerson}
      placeholder={a().findPerson}
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
    />
  );
}
