/** Lucide's icons. They say nothing to a screen reader: the button around them does. */
import {
  ArrowRight,
  ChevronLeft,
  ChevronRight,
  CornerDownLeft,
  CornerDownRight,
  type IconNode,
  PanelLeft,
  SquarePen,
} from "lucide";
import { h } from "preact";

/** Those that point along a line of writing, and the other way where that does. */
const MIRRORED = new Set([
  ArrowRight,
  ChevronLeft,
  ChevronRight,
  CornerDownLeft,
  CornerDownRight,
  PanelLeft,
  SquarePen,
]);

export function Icon({ node, size = 18 }: { node: IconNode; size?: number }) {
  return (
    <svg
      class={MIRRORED.has(node) ? "icon mirrored" : "icon"}
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      stroke-width="1.75"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      {node.map(([tag, attributes]) => h(tag, attributes as object))}
    </svg>
  );
}
