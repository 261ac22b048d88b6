/** What is being attached to a message: chosen, pasted or dropped, on its way to the server, and taken back. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Unreachable } from "../api";
import { complain, toast } from "../state/toasts";
import { lazily } from "../ui/lazily";
import { REFERENCE } from "../ui/picture";
import { t } from "../words";
import { type Attached, filePart, picturePart } from "./attached";

const LARGEST = 50_000_000;
export const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/** A paste of more than this becomes an attachment. */
const [LONG_PASTE, LONG_PASTE_LINES] = [10_000, 200];

/** A file on its way. */
export interface Coming {
  key: number;
  name: string;
  /** From 0 to 1; null while nothing is known. */
  progress: number | null;
  abort: () => void;
}

export interface Attaching {
  all: Attached[];
  coming: Coming[];
  set: (all: Attached[]) => void;
  /** Take all away when the last has arrived; null, and they stay, if one did not. */
  whole: () => Promise<Attached[] | null>;
  take: (files: Iterable<File>, pasted?: string) => Promise<void>;
  /** Files are held over the window. */
  isDropping: boolean;
  /** For the box that they are pasted into. */
  onPaste: (event: ClipboardEvent) => void;
}

/** `isKept` is false where nothing may be left on the server: then a message has its files within it. */
export function useAttaching(isKept: () => boolean): Attaching {
  const [all, draw] = useState<Attached[]>([]);
  const [coming, drawComing] = useState<Coming[]>([]);
  const [isDropping, setDropping] = useState(false);
  const line = useRef(Promise.resolve());
  const now = useRef<{ all: Attached[]; coming: Coming[]; failed: number; count: number }>({
    all: [],
    coming: [],
    failed: 0,
    count: 0,
  });
  const set = (changed: Attached[]) => {
    now.current.all = changed;
    draw(changed);
  };
  const setComing = (changed: Coming[]) => {
    now.current.coming = changed;
    drawComing(changed);
  };
  const whole = async () => {
    const before = now.current.failed;
    await line.current;
    if (now.current.failed !== before) return null;
    const taken = now.current.all;
    set([]);
    return taken;
  };
  const add = async (file: File, pasted: string | null, key: number, signal: AbortSignal) => {
    const onProgress = (progress: number) =>
      setComing(now.current.coming.map((each) => (each.key === key ? { ...each, progress } : each)));
    try {
      if (signal.aborted) return;
      const attached = await attachedFrom(file, pasted, { isKept: isKept(), onProgress, signal });
      if (!signal.aborted) set([...now.current.all, attached]);
    } catch (error) {
      if (signal.aborted) return;
      now.current.failed++;
      if (error instanceof Unreachable) toast(t().fileNotSent(file.name), { kind: "bad" });
      else complain(error);
    } finally {
      setComing(now.current.coming.filter((each) => each.key !== key));
    }
  };
  // One after the other, so that they stay in the order in which they were added. A list of dropped files is empty once
  // its event is over.
  const take = (files: Iterable<File>, pasted: string | null = null) => {
    for (const file of files) {
      if (file.size > LARGEST) {
        toast(t().fileTooLarge(file.name), { kind: "bad" });
        continue;
      }
      const [key, abort] = [++now.current.count, new AbortController()];
      const stop = () => {
        abort.abort();
        setComing(now.current.coming.filter((each) => each.key !== key));
      };
      setComing([...now.current.coming, { key, name: file.name, progress: null, abort: stop }]);
      line.current = line.current.then(() => add(file, pasted, key, abort.signal));
    }
    return line.current;
  };
  useLayoutEffect(() => takeDropped(setDropping, take), []);
  return { all, coming, set, whole, take, isDropping, onPaste: (event) => takePasted(event, take) };
}

interface How {
  isKept: boolean;
  onProgress: (share: number) => void;
  signal: AbortSignal;
}

async function attachedFrom(file: File, pasted: string | null, how: How): Promise<Attached> {
  const { dataUrl, sendFile } = await lazily(() => import("./send"));
  if (PICTURES.includes(file.type)) {
    const { shrunk } = await lazily(() => import("../ui/shrink"));
    const picture = await shrunk(file).catch(() => {
      throw new Error(t().unreadableImage(file.name));
    });
    return { part: picturePart(await dataUrl(picture)), facts: null, pasted: null };
  }
  const facts = await sendFile(file, how);
  if (facts.type.startsWith("image/"))
    // whatever it was called
    return { part: picturePart(await dataUrl(new Blob([file], { type: facts.type }))), facts, pasted: null };
  const url = how.isKept ? REFERENCE + facts.sha256 : await dataUrl(new Blob([file], { type: facts.type }));
  return { part: filePart(facts.name, url), facts, pasted };
}

/** Files that are pasted are attached, and so is a long text: it would fill the chat. */
function takePasted(event: ClipboardEvent, take: (files: File[], pasted?: string) => void): void {
  const files = [...(event.clipboardData?.files ?? [])];
  const text = event.clipboardData?.getData("text/plain") ?? "";
  const isLong = text.length > LONG_PASTE || text.split("\n", LONG_PASTE_LINES + 1).length > LONG_PASTE_LINES;
  if (files.length && !text) {
    event.preventDefault();
    take(files);
  } else if (isLong) {
    event.preventDefault();
    take([new File([text], t().pastedName, { type: "text/plain" })], text);
  }
}

/** Take files that are dropped anywhere in the window, until the returned function is called. */
function takeDropped(setDropping: (is: boolean) => void, take: (files: File[]) => void): () => void {
  const until = new AbortController();
  const on = (kind: "dragover" | "dragleave" | "drop", hear: (event: DragEvent) => void) =>
    addEventListener(kind, hear, { signal: until.signal });
  on("dragover", (event) => setDropping(hasFiles(event)));
  on("dragleave", ({ relatedTarget }) => relatedTarget === null && setDropping(false)); // it has left the window
  on("drop", (event) => {
    setDropping(false);
    if (hasFiles(event)) take([...(event.dataTransfer?.files ?? [])]);
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
