/** The line at the top of a view: its title, and what can be done with it. */
import { SquarePen } from "lucide";
import type { ComponentChildren } from "preact";
import { newChat } from "../keyboard";
import { isGuest } from "../state/caller";
import { t } from "../words";
import { Icon } from "./icon";
import { SidebarButton } from "./sidebar-button";

export function ViewHeader({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  return (
    <header class="view-header">
      <SidebarButton />
      {!isGuest.value && (
        <button
          type="button"
          class="quiet icon-button new-chat"
          aria-label={t().newChat}
          title={t().newChat}
          onClick={newChat}
        >
          <Icon node={SquarePen} />
        </button>
      )}
      <h1 dir="auto">{title}</h1>
      <div class="actions">{children}</div>
    </header>
  );
}
