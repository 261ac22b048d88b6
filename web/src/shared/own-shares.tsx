/** Everything that this person shares, in the settings. */
import { useEffect, useState } from "preact/hooks";
import { complain } from "../state/toasts";
import type { Share } from "../types";
import { s } from "../words/sharing";
import { shares } from "./calls";
import { ShareList } from "./share-list";

export function OwnShares() {
  const [list, setList] = useState<Share[] | null>(null);
  const load = () => shares.mine().then((found) => setList(found.shares), complain);
  useEffect(() => {
    load();
  }, []);
  if (!list) return null;
  return (
    <section aria-labelledby="shared-chats">
      <h2 id="shared-chats">{s().sharedChats}</h2>
      {!list.length && <p class="note">{s().nothingAtAll}</p>}
      <ShareList list={list} onChange={load} hasTitles />
    </section>
  );
}
