/** What the person is told of one chat. */
import { complain } from "../state/toasts";
import { Dialog } from "../ui/dialog";
import { Shown, useLoaded } from "../ui/loaded";
import { n } from "../words/notifications";
import { calls } from "./calls";
import { WantedChoice } from "./choice";

export default function ChatNotifications({ session, onClose }: { session: string; onClose: () => void }) {
  const told = useLoaded(() => calls.ofChat(session), session);
  return (
    <Dialog title={n().notifications} onClose={onClose} class="narrow">
      <Shown of={told}>
        {({ notify }) => (
          <WantedChoice
            value={notify}
            inherited={n().asInSettings}
            onChange={(value) => calls.chooseForChat(session, value).then(() => told.load(), complain)}
          />
        )}
      </Shown>
    </Dialog>
  );
}
