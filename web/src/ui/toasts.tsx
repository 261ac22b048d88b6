import { X } from "lucide";
import { dismiss, toasts } from "../state/toasts";
import { t } from "../words";
import { Icon } from "./icon";

export function Toasts() {
  return (
    <div class="toasts" role="status">
      {toasts.value.map(({ id, text, kind, action }) => (
        <div key={id} class={`toast ${kind}`}>
          <span>{text}</span>
          {action && (
            <button
              type="button"
              class="link"
              onClick={() => {
                dismiss(id);
                action.run();
              }}
            >
              {action.label}
            </button>
          )}
          <button type="button" class="quiet icon-button" aria-label={t().dismiss} onClick={() => dismiss(id)}>
            <Icon node={X} size={14} />
          </button>
        </div>
      ))}
    </div>
  );
}
