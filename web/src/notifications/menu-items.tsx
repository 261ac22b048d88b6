/** What the menu of a chat has of notifications and phones. It comes when the menu is drawn. */
import { Bell, Smartphone } from "lucide";
import { MenuItem } from "../ui/menu";
import { n } from "../words/notifications";
import ChatNotifications from "./chat-dialog";
import PhoneDialog from "./phone-dialog";

/** What is shown of a chat in a dialog. */
export type ChatDialog = typeof ChatNotifications;

export default function NotificationItems({ show }: { show: (dialog: ChatDialog) => void }) {
  return (
    <>
      <MenuItem icon={Smartphone} onClick={() => show(PhoneDialog)}>
        {n().openOnPhone}
      </MenuItem>
      <MenuItem icon={Bell} onClick={() => show(ChatNotifications)}>
        {n().notifications}
      </MenuItem>
    </>
  );
}
