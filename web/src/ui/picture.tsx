/** A picture of a message: the one that is being sent, or one that the server keeps. */

import { useEffect, useState } from "preact/hooks";
import { api, isAway } from "../api";

/** Stands before the hash of a picture that the server keeps (clause 10.9 of the protocol). */
export const REFERENCE = "holdfast-file:";
const MOST = 64;

/** Addresses of pictures that were fetched, by their references. The oldest is let go of when there are many. */
const fetched = new Map<string, string>();

export function Picture({ session, url, alt }: { session: string | null; url: string; alt: string }) {
  const isKept = url.startsWith(REFERENCE);
  const [, setFetched] = useState(0);
  const src = isKept ? fetched.get(url) : url;
  useEffect(() => {
    if (src || session === null) return;
    let isWanted = true;
    addressOf(session, url)
      .then(() => isWanted && setFetched((count) => count + 1))
      .catch(() => {}); // the page tells that the server is away, and asks again when it is back
    return () => {
      isWanted = false;
    };
  }, [session, url, isAway.value]);
  if (!src) return <span class="picture-place" role="img" aria-label={alt} />;
  return <img src={src} alt={alt} />;
}

async function addressOf(session: string, url: string): Promise<void> {
  const blob = await api.picture(session, url.slice(REFERENCE.length));
  if (fetched.has(url)) return;
  fetched.set(url, URL.createObjectURL(blob));
  const [oldest] = fetched;
  if (!oldest || fetched.size <= MOST) return;
  fetched.delete(oldest[0]);
  URL.revokeObjectURL(oldest[1]);
}
