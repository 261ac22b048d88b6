/** What went with a message: its pictures, and its files as chips that open. */

import { FileText } from "lucide";
import { useState } from "preact/hooks";
import type { Content } from "../types";
import { Icon } from "../ui/icon";
import { Later } from "../ui/later";
import { Picture } from "../ui/picture";
import { t } from "../words";
import { attachedOf, type FileOfMessage, fileOf, pictureOf } from "./attached";
import { blobOf } from "./blob";

interface ShownProps {
  content: Content | null;
  /** The id of its session, or the path of a link; null while it is being sent. */
  session: string | null;
}

const loadPreview = () => import("./preview");

export function AttachedFiles({ content, session }: ShownProps) {
  const [open, setOpen] = useState<FileOfMessage | null>(null);
  const parts = attachedOf(content);
  const files = parts.map(fileOf).filter((file) => file !== null);
  const pictures = parts.map(pictureOf).filter(Boolean);
  return (
    <>
      {pictures.length > 0 && (
        <div class="pictures">
          {pictures.map((url, index) => (
            <Picture key={index} session={session} url={url} alt={t().attachment(index + 1)} />
          ))}
        </div>
      )}
      {files.length > 0 && (
        <ul class="attached" aria-label={t().attachments}>
          {files.map((file, index) => (
            <li key={index}>
              <button type="button" class="file-chip" onClick={() => setOpen(file)}>
                <Icon node={FileText} />
                <bdi>{file.name}</bdi>
              </button>
            </li>
          ))}
        </ul>
      )}
      {open && (
        <Later
          load={loadPreview}
          name={open.name}
          bytes={() => blobOf(open.url, session)}
          onClose={() => setOpen(null)}
        />
      )}
    </>
  );
}
