/** The line at the top of a view: its title, and what can be done with it. */
import type { ComponentChildren } from "preact";
import { SidebarButton } from "./sidebar-button";

export function ViewHeader({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  return (
    <header class="view-header">
      <SidebarButton />
      <h1 dir="auto">{title}</h1>
      <div class="actions">{children}</div>
    </header>
  );
}
