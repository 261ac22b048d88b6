/** The switch of a temporary chat, and what is said while it lasts. */
import { MessageCircleDashed } from "lucide";
import { toggleTemporary } from "../state/current";
import { Icon } from "../ui/icon";
import { t } from "../words";

export function TemporarySwitch({ isOn }: { isOn: boolean }) {
  return (
    <button
      type="button"
      class="quiet temporary-switch"
      aria-label={t().temporaryChat}
      aria-pressed={isOn}
      title={t().temporaryChat}
      onClick={toggleTemporary}
    >
      <Icon node={MessageCircleDashed} />
      <span>{t().temporaryChat}</span>
    </button>
  );
}

export function TemporaryNote() {
  return (
    <p class="temporary-note" role="note">
      {t().temporaryNote}
    </p>
  );
}
