/** The bytes of a picture or a file: of one that is being sent, or one that the server keeps. */
import { api } from "../api";
import { REFERENCE } from "../ui/picture";

export async function blobOf(url: string, session: string | null): Promise<Blob> {
  if (url.startsWith(REFERENCE)) return await api.picture(session ?? "", url.slice(REFERENCE.length));
  const [head = "", data = ""] = url.split(",", 2);
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return new Blob([bytes], { type: head.slice("data:".length).split(";")[0] });
}
