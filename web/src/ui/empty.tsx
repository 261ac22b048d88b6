/** What a view says when it has nothing to show, and what can be done about it. */
import type { ComponentChildren } from "preact";

interface EmptyProps {
  title: string;
  text?: string;
  children?: ComponentChildren;
}

export function Empty({ title, text, children }: EmptyProps) {
  return (
    <div class="empty">
      <h1>{title}</h1>
      {text && <p>{text}</p>}
      {children}
    </div>
  );
}
