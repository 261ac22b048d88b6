/** A button with a menu: a native popover, placed beside its button, left with Escape, walked with the arrows. */

import type { IconNode } from "lucide";
import type { ComponentChildren, TargetedMouseEvent } from "preact";
import { useId } from "preact/hooks";
import { useElement } from "./element";
import { Icon } from "./icon";

interface MenuProps {
  label: string;
  icon: IconNode;
  children: ComponentChildren;
  class?: string;
  /** Tab passes it by: something beside it leads there. */
  isPassedBy?: boolean;
}

export function Menu({ label, icon, children, class: name = "", isPassedBy = false }: MenuProps) {
  const id = useId();
  const button = useElement<HTMLButtonElement>();
  const menu = useElement<HTMLDivElement>();
  const onToggle = (event: Event) => {
    if ((event as ToggleEvent).newState !== "open") return;
    placeBeside(menu.current, button.current);
    itemsOf(menu.current)[0]?.focus();
  };
  return (
    <>
      <button
        type="button"
        ref={button}
        class={`quiet icon-button ${name}`}
        tabIndex={isPassedBy ? -1 : undefined}
        popovertarget={id}
        aria-haspopup="menu"
        aria-label={label}
        title={label}
      >
        <Icon node={icon} />
      </button>
      <div
        id={id}
        ref={menu}
        popover="auto"
        role="menu"
        class="menu"
        onToggle={onToggle}
        onKeyDown={walk}
        onClickCapture={hide}
      >
        {children}
      </div>
    </>
  );
}

/** Before what was chosen is done: the focus is back at the button by then, and a dialog returns it there. */
function hide({ currentTarget: menu }: TargetedMouseEvent<HTMLElement>): void {
  menu.hidePopover();
}

interface ItemProps {
  icon: IconNode;
  onClick: () => void;
  children: ComponentChildren;
  kind?: "plain" | "bad" | "narrow-only";
}

export function MenuItem({ icon, onClick, children, kind = "plain" }: ItemProps) {
  return (
    <button type="button" role="menuitem" class={kind === "plain" ? undefined : kind} onClick={onClick}>
      <Icon node={icon} size={16} />
      <span>{children}</span>
    </button>
  );
}

export function placeBeside(popover: HTMLElement, anchor: HTMLElement): void {
  const gap = 6;
  const at = anchor.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = popover;
  const below = at.bottom + gap + height <= innerHeight;
  const [fromLeft, fromRight] = [at.left, at.right - width];
  const left = document.documentElement.dir === "rtl" ? (fromRight >= gap ? fromRight : fromLeft) : fromLeft;
  popover.style.left = `${Math.max(gap, left + width + gap <= innerWidth ? left : fromRight)}px`;
  popover.style.top = `${below ? at.bottom + gap : Math.max(gap, at.top - gap - height)}px`;
}

function walk(event: KeyboardEvent): void {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  const items = itemsOf(event.currentTarget as HTMLElement);
  const at = items.indexOf(document.activeElement as HTMLElement);
  items.at((at + (event.key === "ArrowDown" ? 1 : -1)) % items.length)?.focus();
}

/** The items that are shown at this width of the page. */
function itemsOf(menu: HTMLElement): HTMLElement[] {
  return [...menu.querySelectorAll<HTMLElement>("[role=menuitem]")].filter((item) => item.checkVisibility());
}
