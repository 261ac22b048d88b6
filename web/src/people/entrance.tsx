/** A page for people who are not signed in: a card in the middle of an empty page. */
import type { ComponentChildren } from "preact";
import { usePageTitle } from "../ui/page-title";
import "../styles/people.css";
import "../styles/views.css";

export function Entrance({ title, children }: { title: string; children: ComponentChildren }) {
  usePageTitle(title);
  return (
    <main class="entrance">
      <div class="entrance-card">
        <img src="/icon.svg" alt="" width="48" height="48" />
        <h1>{title}</h1>
        {children}
      </div>
    </main>
  );
}
