import { PanelLeft } from "lucide";
import { isDrawer, isSidebarHidden, isSidebarOpen, setSidebarHidden } from "../state/preferences";
import { t } from "../words";
import { Icon } from "./icon";

/** Opens the list of sessions: a drawer on a phone, a column on anything wider. */
export function SidebarButton() {
  const toggle = () => {
    if (isDrawer()) isSidebarOpen.value = !isSidebarOpen.value;
    else setSidebarHidden(!isSidebarHidden.value);
  };
  return (
    <button type="button" class="quiet icon-button" aria-label={t().chats} title={t().chats} onClick={toggle}>
      <Icon node={PanelLeft} />
    </button>
  );
}
