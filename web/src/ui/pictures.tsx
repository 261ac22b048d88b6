/** Pictures that go with a message: chosen, pasted or dropped, and taken back. */

import { ImagePlus, X } from "lucide";
import { useEffect, useRef, useState } from "preact/hooks";
import { toast } from "../state/toasts";
import { t } from "../words";
import { useElement } from "./element";
import { Icon } from "./icon";
import { lazily } from "./lazily";

const LARGEST = 50_000_000;
const KINDS = ["image/png", "image/jpeg", "image/gif", "image/webp"];

export interface Pictures {
  /** As data URLs. */
  urls: string[];
  /** Some are being read. */
  areComing: boolean;
  set: (urls: string[]) => void;
  /** Take all away when the last has been read; null, and they stay, if one could not be. */
  whole: () => Promise<string[] | null>;
  take: (files: Iterable<File>) => Promise<void>;
  /** Files are held over the window. */
  isDropping: boolean;
  /** For the box that they are pasted into. */
  onPaste: (event: ClipboardEvent) => void;
}

export function usePictures(): Pictures {
  const [urls, draw] = useState<string[]>([]);
  const [coming, setComing] = useState(0);
  const [isDropping, setDropping] = useState(false);
  const line = useRef(Promise.resolve());
  const now = useRef<string[]>([]);
  const failed = useRef(0);
  const set = (changed: string[]) => {
    now.current = changed;
    draw(changed);
  };
  const whole = async () => {
    const before = failed.current;
    await line.current;
    if (failed.current !== before) return null;
    const all = now.current;
    set([]);
    return all;
  };
  const add = async (file: File) => {
    try {
      const { shrunk } = await lazily(() => import("./shrink")); // most chats have no picture
      const url = await dataUrl(await shrunk(file));
      set([...now.current, url]);
    } catch {
      failed.current++;
      toast(t().unreadableImage(file.name), { kind: "bad" });
    }
  };
  const takeEach = async (files: File[]) => {
    for (const file of files) {
      if (!KINDS.includes(file.type)) toast(t().unsupportedFile, { kind: "bad" });
      else if (file.size > LARGEST) toast(t().tooLarge(file.name), { kind: "bad" });
      else await add(file);
    }
  };
  // One after the other, so that pictures stay in the order in which they were added. A list of dropped files is
  // empty once its event is over.
  const take = (files: Iterable<File>) => {
    const added = [...files];
    setComing((count) => count + 1);
    line.current = line.current.then(() => takeEach(added)).finally(() => setComing((count) => count - 1));
    return line.current;
  };
  useEffect(() => takeDropped(setDropping, take), []);
  return {
    urls,
    areComing: coming > 0,
    set,
    whole,
    take,
    isDropping,
    onPaste: (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      take(files);
    },
  };
}

/** Take files that are dropped anywhere in the window, until the returned function is called. */
function takeDropped(setDropping: (is: boolean) => void, take: Pictures["take"]): () => void {
  const until = new AbortController();
  const on = (kind: "dragover" | "dragleave" | "drop", hear: (event: DragEvent) => void) =>
    addEventListener(kind, hear, { signal: until.signal });
  on("dragover", (event) => setDropping(hasFiles(event)));
  on("dragleave", ({ relatedTarget }) => relatedTarget === null && setDropping(false)); // it has left the window
  on("drop", (event) => {
    setDropping(false);
    if (hasFiles(event)) take(event.dataTransfer?.files ?? []);
  });
  return () => until.abort();
}

/** Let no file that is dropped somewhere take the place of the page. */
export function refuseToOpenFiles(event: DragEvent): void {
  if (hasFiles(event)) event.preventDefault();
}

function hasFiles({ dataTransfer }: DragEvent): boolean {
  return dataTransfer?.types.includes("Files") ?? false;
}

export function Attachments({ pictures: { urls, set, isDropping } }: { pictures: Pictures }) {
  return (
    <>
      {isDropping && <p class="drop-here">{t().dropImages}</p>}
      {urls.length > 0 && <Thumbnails urls={urls} set={set} />}
    </>
  );
}

function Thumbnails({ urls, set }: Pick<Pictures, "urls" | "set">) {
  return (
    <div class="pictures">
      {urls.map((url, index) => (
        <span key={index}>
          <img src={url} alt={t().attachment(index + 1)} />
          <button
            type="button"
            class="icon-button"
            aria-label={t().removeAttachment(index + 1)}
            onClick={() => set(urls.toSpliced(index, 1))}
          >
            <Icon node={X} size={14} />
          </button>
        </span>
      ))}
    </div>
  );
}

export function AddPicture({ pictures }: { pictures: Pictures }) {
  const input = useElement<HTMLInputElement>();
  return (
    <>
      <button
        type="button"
        class="quiet icon-button"
        aria-label={t().attachImage}
        title={t().attachImageHint}
        onClick={() => input.current.click()}
      >
        <Icon node={ImagePlus} />
      </button>
      <input
        ref={input}
        type="file"
        accept={KINDS.join(",")}
        multiple
        hidden
        onChange={(event) => {
          pictures.take([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}

function dataUrl(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
