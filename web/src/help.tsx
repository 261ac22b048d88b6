/** The keyboard, on one card. */
import { isHelpOpen, isMac, shortcuts } from "./keyboard";
import { Dialog } from "./ui/dialog";
import { t } from "./words";

export default function Help() {
  const close = () => {
    isHelpOpen.value = false;
  };
  return (
    <Dialog title={t().keyboardShortcuts} onClose={close}>
      <Shortcuts />
    </Dialog>
  );
}

export function Shortcuts() {
  return (
    <dl class="shortcuts">
      {shortcuts().map(([keys, says]) => (
        <div key={says}>
          <dt>
            {keys.map((key) => (
              <kbd key={key}>{key === "Mod" ? (isMac ? "⌘" : "Ctrl") : key}</kbd>
            ))}
          </dt>
          <dd>{says}</dd>
        </div>
      ))}
    </dl>
  );
}
