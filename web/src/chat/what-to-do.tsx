/** A link to the page about an error: its cause, and what to do. */
import { t } from "../words";
import type { Told } from "./outcome";

export function WhatToDo({ told }: { told: Told }) {
  if (!told.help) return null;
  return (
    <a class="what-to-do" href={told.help} target="_blank" rel="noopener">
      {t().whatToDo}
    </a>
  );
}
