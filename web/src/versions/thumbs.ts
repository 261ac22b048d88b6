/** The votes on the answers of a chat, as this tab knows them. They are asked for when a menu is drawn, once. */
import { signal } from "@preact/signals";
import { type Thumb, type Vote, versions } from "./calls";

const thumbs = signal<ReadonlyMap<string, Thumb>>(new Map());
let asked = "";

export const thumbOf = (message: string): Thumb | undefined => thumbs.value.get(message);

export function loadThumbs(session: string): void {
  if (asked === session) return;
  asked = session;
  versions.thumbs(session).then(
    (found) => {
      if (asked === session) thumbs.value = new Map(found.thumbs.map((each) => [each.message_id, each]));
    },
    () => {
      asked = "";
    },
  );
}

export async function vote(session: string, message: string, chosen: Vote | null, why = ""): Promise<void> {
  const voted = chosen ? await versions.vote(session, message, chosen, why) : await versions.unvote(session, message);
  const after = new Map(thumbs.value); // as it is now: another vote may have been taken meanwhile
  if (voted) after.set(message, voted);
  else after.delete(message);
  thumbs.value = after;
}
