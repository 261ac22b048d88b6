/** The keyboard, on one card. */
import { isHelpOpen, isMac, SHORTCUTS } from "./keyboard";
import { Dialog } from "./ui/dialog";

export function Help() {
  if (!isHelpOpen.value) return null;
  const close = () => {
    isHelpOpen.value = false;
  };
  return (
    <Dialog title="Keyboard" onClose={close}>
      <Shortcuts />
    </Dialog>
  );
}

export function Shortcuts() {
  return (
    <dl class="shortcuts">
      {SHORTCUTS.map(([keys, says]) => (
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
