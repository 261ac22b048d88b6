/** Saves files to the reader's disk. */
import { download } from "../api";
import { complain } from "../state/toasts";

/** Save what a path answers. It is fetched here, because a link could not send the key. */
export async function saveFrom(path: string, name: string): Promise<void> {
  try {
    save(name, await download(path));
  } catch (error) {
    complain(error);
  }
}

export function saveText(name: string, text: string): void {
  save(name, new Blob([text], { type: "text/plain" }));
}

export function save(name: string, blob: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
}
