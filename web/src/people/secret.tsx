/** Shows a secret once, with a button that copies it. */

import { CopyButton } from "../ui/copy";
import { Dialog } from "../ui/dialog";
import { a } from "../words/people";

interface SecretProps {
  title: string;
  note: string;
  label: string;
  secret: string;
  onClose: () => void;
}

export function Secret({ title, note, label, secret, onClose }: SecretProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="secret">
        <p class="note">{note}</p>
        <div class="secret-line">
          <input
            type="text"
            class="mono"
            dir="ltr"
            readonly
            aria-label={label}
            value={secret}
            onFocus={(event) => event.currentTarget.select()}
          />
          <CopyButton text={secret} label={a().copy} />
        </div>
        <footer>
          <button type="button" class="primary" onClick={onClose}>
            {a().iHaveIt}
          </button>
        </footer>
      </div>
    </Dialog>
  );
}
