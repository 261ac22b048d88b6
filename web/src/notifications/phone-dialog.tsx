/** Open the chat on a phone, where it is read here: a QR code and a link. Neither gives rights: the phone signs in. */
import { useState } from "preact/hooks";
import { QrCode } from "../people/qr-code";
import { Dialog } from "../ui/dialog";
import { Shown, useLoaded } from "../ui/loaded";
import { n } from "../words/notifications";
import { calls } from "./calls";
import "../styles/people.css";

const LOCAL = /^(localhost|127\..*|\[::1\])$/;

export default function PhoneDialog({ session, onClose }: { session: string; onClose: () => void }) {
  const [link] = useState(() => `${location.origin}/s/${session}${placeInView()}`);
  const code = useLoaded(() => calls.qr(link), link);
  return (
    <Dialog title={n().openOnPhone} onClose={onClose} class="narrow">
      <p class="note">{LOCAL.test(location.hostname) ? n().onlyThisMachine : n().phoneNote}</p>
      <Shown of={code}>{({ rows }) => <QrCode rows={rows} label={n().phoneCode} />}</Shown>
      <p>
        <a href={link} dir="ltr" class="phone-link">
          {link}
        </a>
      </p>
    </Dialog>
  );
}

/** The message that is read: the first one whose end is in view. */
function placeInView(): string {
  const messages = document.querySelectorAll<HTMLElement>(".transcript [data-message]");
  const read = [...messages].find((each) => each.getBoundingClientRect().bottom > innerHeight / 4);
  const id = read?.dataset.message ?? "";
  return id.startsWith("msg_") ? `#${id}` : "";
}
