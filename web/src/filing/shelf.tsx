/** Above the list of chats: folders that open and close, tags to filter by, the archive, and what is chosen. */
import { Archive, ChevronRight, Ellipsis, Folder, FolderMinus, Pencil, X } from "lucide";
import { useEffect, useState } from "preact/hooks";
import { SessionLine } from "../sidebar";
import { filter, loadFiltered, loads, query, sessions } from "../state/sessions";
import { complain } from "../state/toasts";
import "../styles/filing.css";
import { Confirm } from "../ui/confirm";
import { Icon } from "../ui/icon";
import { Later } from "../ui/later";
import { Menu, MenuItem } from "../ui/menu";
import { t } from "../words";
import { number } from "../words/count";
import { f } from "../words/filing";
import { SelectBar } from "./bar";
import type { Label } from "./calls";
import { chosen, organized } from "./chosen";
import { followLabels, labels, loadLabels, rename } from "./state";

const ORGANIZE = () => import("./dialog");

export default function Shelf() {
  useEffect(() => {
    const timer = followLabels(sessions.value);
    return () => clearTimeout(timer);
  }, [sessions.value]);
  useEffect(() => void loadLabels().catch(() => {}), []);
  const { folders, tags, archived } = labels.value;
  const isFiltered = filter.value.archived || filter.value.tag !== undefined;
  return (
    <>
      {organized.value && <Later load={ORGANIZE} ids={organized.value} />}
      {chosen.value && <SelectBar ids={[...chosen.value]} />}
      {!query.value && (
        <div class="shelf">
          {!isFiltered && folders.map((folder) => <FolderLine key={folder.name} folder={folder} />)}
          {(tags.length > 0 || archived > 0 || isFiltered) && (
            <div class="filters">
              {tags.map(({ name }) => (
                <Toggle
                  key={name}
                  name={name}
                  isOn={filter.value.tag === name}
                  onToggle={(isOn) => {
                    filter.value = isOn ? { tag: name } : {};
                  }}
                />
              ))}
              {(archived > 0 || filter.value.archived) && (
                <Toggle
                  name={f().archiveOf(number(archived))}
                  isArchive
                  isOn={filter.value.archived === true}
                  onToggle={(isOn) => {
                    filter.value = isOn ? { archived: true } : {};
                  }}
                />
              )}
            </div>
          )}
        </div>
      )}
    </>
  );
}

interface ToggleProps {
  name: string;
  isOn: boolean;
  isArchive?: boolean;
  onToggle: (isOn: boolean) => void;
}

function Toggle({ name, isOn, isArchive = false, onToggle }: ToggleProps) {
  return (
    <button type="button" class="tag" aria-pressed={isOn} onClick={() => onToggle(!isOn)}>
      {isArchive && <Icon node={Archive} size={14} />}
      <span dir="auto">{name}</span>
      {isOn && <Icon node={X} size={14} />}
    </button>
  );
}

function FolderLine({ folder: { name, sessions: count } }: { folder: Label }) {
  const [isOpen, setOpen] = useState(false);
  const [next, setNext] = useState<string | null>(null);
  const [asks, setAsks] = useState<"rename" | "remove" | null>(null);
  const load = (before = "") => loadFiltered({ folder: name }, before).then(setNext, complain);
  useEffect(() => {
    if (isOpen) load();
  }, [isOpen, loads.value]);
  const inside = sessions.value.filter(({ folder }) => folder === name);
  if (!count && !inside.length) return null; // only archived chats have it
  return (
    <section class="folder" aria-label={name}>
      <div class="folder-line">
        <button type="button" class="quiet" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <Icon node={ChevronRight} size={14} />
          <Icon node={Folder} size={16} />
          <span class="title" dir="auto">
            {name}
          </span>
          <span class="count">{number(count)}</span>
        </button>
        <Menu label={t().actionsFor(name)} icon={Ellipsis}>
          <MenuItem icon={Pencil} onClick={() => setAsks("rename")}>
            {t().rename}
          </MenuItem>
          <MenuItem icon={FolderMinus} onClick={() => setAsks("remove")}>
            {f().removeFolder}
          </MenuItem>
        </Menu>
      </div>
      {isOpen && (
        <ul>
          {inside.map((session) => (
            <SessionLine key={session.id} session={session} />
          ))}
          {next && (
            <li>
              <button type="button" class="link more" onClick={() => load(next)}>
                {t().showMore}
              </button>
            </li>
          )}
        </ul>
      )}
      {asks && <Ask kind={asks} name={name} onClose={() => setAsks(null)} />}
    </section>
  );
}

function Ask({ kind, name, onClose }: { kind: "rename" | "remove"; name: string; onClose: () => void }) {
  const isRename = kind === "rename";
  return (
    <Confirm
      title={isRename ? f().renameFolder : f().removeFolder}
      action={isRename ? t().save : f().removeFolder}
      isBad={!isRename}
      onConfirm={(form) => rename("folder", name, isRename ? String(new FormData(form).get("to") ?? "").trim() : "")}
      onClose={onClose}
    >
      {isRename ? (
        <label>
          {f().folderName}
          <input name="to" type="text" dir="auto" maxLength={64} required defaultValue={name} />
        </label>
      ) : (
        <p>{f().removeFolderWhy}</p>
      )}
    </Confirm>
  );
}
