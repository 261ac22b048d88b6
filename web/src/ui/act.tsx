/** A button with a picture, for one thing of a list. */
import type { IconNode } from "lucide";
import { Icon } from "./icon";

interface ActProps {
  icon: IconNode;
  label: string;
  title: string;
  isDisabled?: boolean;
  onClick: () => void;
}

export function Act({ icon, label, title, isDisabled = false, onClick }: ActProps) {
  return (
    <button
      type="button"
      class="quiet icon-button"
      aria-label={label}
      title={title}
      disabled={isDisabled}
      onClick={onClick}
    >
      <Icon node={icon} size={16} />
    </button>
  );
}
