/** Saves what a path answers as a file: fetched here, because a link could not send the key. */
import { authorization } from "../api";
import { complain } from "../state/toasts";

export async function saveFrom(path: string, name: string): Promise<void> {
  try {
    const response = await fetch(path, { headers: authorization() });
    if (!response.ok) throw new Error(`The server answered ${response.status}.`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await response.blob());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
  } catch (error) {
    complain(error);
  }
}
