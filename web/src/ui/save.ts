/** Saves files to the reader's disk. */
import { authorization } from "../api";
import { complain } from "../state/toasts";
import { t } from "../words";

/** Save what a path answers. It is fetched here, because a link could not send the key. */
export async function saveFrom(path: string, name: string): Promise<void> {
  try {
    const response = await fetch(path, { headers: authorization() });
    if (!response.ok) throw new Error(t().serverError(response.status));
    save(name, await response.blob());
  } catch (error) {
    complain(error);
  }
}

export function saveText(name: string, text: string): void {
  save(name, new Blob([text], { type: "text/plain" }));
}

function save(name: string, blob: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
}
