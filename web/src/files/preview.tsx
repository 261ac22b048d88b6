/** A file of a message: its text, as it is, and a way to save it. Nothing of it is ever shown as a page. */

import { Download } from "lucide";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icon";
import { Shown, useLoaded } from "../ui/loaded";
import { save } from "../ui/save";
import { t } from "../words";
import type { FileOfMessage } from "./attached";
import { blobOf } from "./blob";

interface PreviewProps {
  file: FileOfMessage;
  session: string | null;
  onClose: () => void;
}

/** Characters that are shown: more would block the page. */
const MOST = 500_000;

interface Fetched {
  blob: Blob;
  text: string | null;
}

export default function Preview({ file, session, onClose }: PreviewProps) {
  const loaded = useLoaded(() => fetched(file, session), file.url);
  return (
    <Dialog title={file.name} onClose={onClose} class="file-preview">
      <Shown of={loaded}>
        {({ blob, text }) => (
          <>
            {text === null ? (
              <p>{t().noPreview}</p>
            ) : (
              <pre tabIndex={0} dir="auto">
                {text.slice(0, MOST)}
              </pre>
            )}
            {text !== null && text.length > MOST && <p>{t().previewCut}</p>}
            <footer>
              <span>{t().fileFacts(blob.size, null, null)}</span>
              <button type="button" onClick={() => save(file.name, blob)}>
                <Icon node={Download} size={16} /> {t().saveFile}
              </button>
            </footer>
          </>
        )}
      </Shown>
    </Dialog>
  );
}

async function fetched({ url }: FileOfMessage, session: string | null): Promise<Fetched> {
  const blob = await blobOf(url, session);
  return { blob, text: await textOf(blob) };
}

/** The text of a file in UTF-8 or UTF-16; null if it is none. */
async function textOf(blob: Blob): Promise<string | null> {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  const [first, second] = bytes;
  const encoding =
    first === 0xff && second === 0xfe ? "utf-16le" : first === 0xfe && second === 0xff ? "utf-16be" : "utf-8";
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    return text.startsWith("%PDF-") || text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}
