/** A file: its text, as it is, or its picture, and a way to save it. Nothing of it is ever shown as a page. */

import { Download } from "lucide";
import { useEffect } from "preact/hooks";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icon";
import { Shown, useLoaded } from "../ui/loaded";
import { save } from "../ui/save";
import { t } from "../words";

interface PreviewProps {
  name: string;
  /** Its bytes. A browser is told their type by the server. */
  bytes: () => Promise<Blob>;
  onClose: () => void;
}

/** Characters that are shown: more would block the page. */
const MOST = 500_000;

interface Fetched {
  blob: Blob;
  text: string | null;
  /** The address of a picture, while the preview is open. */
  picture: string | null;
}

export default function Preview({ name, bytes, onClose }: PreviewProps) {
  const loaded = useLoaded(() => bytes().then(fetched), name);
  const picture = loaded.state.is === "ready" ? loaded.state.value.picture : null;
  useEffect(() => (picture ? () => URL.revokeObjectURL(picture) : undefined), [picture]);
  return (
    <Dialog title={name} onClose={onClose} class="file-preview">
      <Shown of={loaded}>
        {({ blob, text }) => (
          <>
            {picture ? (
              <img src={picture} alt={name} />
            ) : text === null ? (
              <p>{t().noPreview}</p>
            ) : (
              <pre tabIndex={0} dir="auto">
                {text.slice(0, MOST)}
              </pre>
            )}
            {text !== null && text.length > MOST && <p>{t().previewCut}</p>}
            <footer>
              <span>{t().fileFacts(blob.size, null, null)}</span>
              <button type="button" onClick={() => save(name, blob)}>
                <Icon node={Download} size={16} /> {t().saveFile}
              </button>
            </footer>
          </>
        )}
      </Shown>
    </Dialog>
  );
}

async function fetched(blob: Blob): Promise<Fetched> {
  const isPicture = blob.type.startsWith("image/");
  return { blob, text: await textOf(blob), picture: isPicture ? URL.createObjectURL(blob) : null };
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
