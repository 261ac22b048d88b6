/** Where chats are filed: their folder, their tags, the archive. For one chat or for several. */
import { useEffect, useState } from "preact/hooks";
import { complain } from "../state/toasts";
import { useAttempt } from "../ui/attempt";
import { Dialog } from "../ui/dialog";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { f } from "../words/filing";
import type { Filing } from "./calls";
import { choose, chosen, organized } from "./chosen";
import { archive, type Filed, file, filedOf, labels, loadLabels } from "./state";

const NEW = "\n";

export default function Organize({ ids }: { ids: readonly string[] }) {
  const [chats, setChats] = useState<Filed[] | null>(null);
  useEffect(() => {
    filedOf(ids).then(setChats, complain);
  }, [ids]);
  return chats && <Form ids={ids} chats={chats} />;
}

function Form({ ids, chats }: { ids: readonly string[]; chats: Filed[] }) {
  const folders = new Set(chats.map(({ folder }) => folder));
  const [before] = folders.size === 1 ? folders : [undefined];
  const [folder, setFolder] = useState(before);
  const [tags, setTags] = useState<ReadonlyMap<string, boolean>>(new Map());
  const trying = useAttempt();
  useEffect(() => void loadLabels().catch(() => {}), []);
  const close = () => {
    organized.value = null;
  };
  const isOn = (tag: string) => tags.get(tag) ?? chats.every((chat) => chat.tags.includes(tag));
  const names = new Set([
    ...labels.value.tags.map(({ name }) => name),
    ...chats.flatMap((chat) => chat.tags),
    ...tags.keys(),
  ]);
  const isArchived = chats.every(({ archived }) => archived);
  const done = (work: () => Promise<void>) => trying.attempt(work).then((isDone) => isDone && close());
  const save = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const name = folder === NEW ? String(form.get("name")).trim() : folder;
    const fresh = String(form.get("tags") ?? "")
      .split(",")
      .map((tag) => tag.trim())
      .filter(Boolean);
    const change: Filing = {
      ...(name !== undefined && name !== before && { folder: name }),
      add_tags: [...fresh, ...[...tags].filter(([, isSet]) => isSet).map(([tag]) => tag)],
      remove_tags: [...tags].filter(([, isSet]) => !isSet).map(([tag]) => tag),
    };
    done(() => file(ids, change, name && name !== before ? f().moved(ids.length, name) : f().saved));
  };
  return (
    <Dialog title={f().organizeChats(ids.length)} onClose={close} class="narrow organize">
      <form onSubmit={save}>
        <label>
          {f().folder}
          <select value={folder ?? "\t"} onChange={(event) => setFolder(event.currentTarget.value)}>
            {before === undefined && (
              <option value={"\t"} disabled>
                {f().different}
              </option>
            )}
            <option value="">{f().noFolder}</option>
            {labels.value.folders.map(({ name }) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
            <option value={NEW}>{f().newFolder}</option>
          </select>
        </label>
        {folder === NEW && (
          <label>
            {f().folderName}
            <input name="name" type="text" dir="auto" maxLength={64} required autofocus />
          </label>
        )}
        {names.size > 0 && (
          <fieldset>
            <legend>{f().tags}</legend>
            <div class="tags">
              {[...names].sort().map((tag) => (
                <label key={tag} class="tag">
                  <input
                    type="checkbox"
                    checked={isOn(tag)}
                    onChange={({ currentTarget }) => setTags(new Map(tags).set(tag, currentTarget.checked))}
                  />
                  <span dir="auto">{tag}</span>
                </label>
              ))}
            </div>
          </fieldset>
        )}
        <label>
          {f().newTags}
          <input name="tags" type="text" dir="auto" maxLength={400} placeholder={f().newTagsHint} />
        </label>
        <Problem of={trying} />
        <footer>
          {chosen.value === null && (
            <button
              type="button"
              class="link"
              onClick={() => {
                for (const id of ids) choose(id);
                close();
              }}
            >
              {f().selectMore}
            </button>
          )}
          <button type="button" disabled={trying.isBusy} onClick={() => done(() => archive(ids, !isArchived))}>
            {isArchived ? f().unarchive : f().archive}
          </button>
          <button type="submit" class="primary" disabled={trying.isBusy}>
            {t().save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
