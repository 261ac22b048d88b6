/** What can be done with the chosen chats. */
import { Archive, ArchiveRestore, Download, FolderInput, Trash2, X } from "lucide";
import { useLayoutEffect } from "preact/hooks";
import { navigate, place } from "../router";
import { filter, removeWithUndo, sessions } from "../state/sessions";
import { complain } from "../state/toasts";
import { Icon } from "../ui/icon";
import { lazily } from "../ui/lazily";
import { t } from "../words";
import { f } from "../words/filing";
import { chooseAll, chooseNone, organized } from "./chosen";
import { archive } from "./state";

export function SelectBar({ ids }: { ids: string[] }) {
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || document.querySelector("dialog[open], .menu:popover-open")) return;
      event.preventDefault();
      chooseNone();
    };
    addEventListener("keydown", onKey, true);
    return () => removeEventListener("keydown", onKey, true);
  }, []);
  const isArchive = filter.value.archived === true;
  const none = !ids.length;
  const remove = () => {
    const running = sessions.value.filter(({ id, active_run }) => active_run && ids.includes(id)).length;
    const open = place.value.id;
    removeWithUndo(ids, f().deletedChats(ids.length) + (running ? ` ${f().willStop(running)}` : ""));
    if (open && ids.includes(open)) navigate("/");
    chooseNone();
  };
  return (
    <div class="select-bar" role="toolbar" aria-label={f().chosenChats}>
      <output>{f().selected(ids.length)}</output>
      <button type="button" class="link" onClick={chooseAll}>
        {f().selectAll}
      </button>
      <span class="tools">
        <Tool name={f().organize} icon={FolderInput} isOff={none} onClick={() => open(ids)} />
        <Tool
          name={isArchive ? f().unarchive : f().archive}
          icon={isArchive ? ArchiveRestore : Archive}
          isOff={none}
          onClick={() => archive(ids, !isArchive).catch(complain)}
        />
        <Tool name={f().exportChats} icon={Download} isOff={none} onClick={() => saveAll(ids)} />
        <Tool name={t().delete} icon={Trash2} isOff={none} onClick={remove} />
        <Tool name={f().stopSelecting} icon={X} onClick={chooseNone} />
      </span>
    </div>
  );
}

function open(ids: string[]): void {
  organized.value = ids;
}

async function saveAll(ids: string[]): Promise<void> {
  const { exportAll } = await lazily(() => import("../chat/export"));
  await exportAll(ids);
  chooseNone();
}

interface ToolProps {
  name: string;
  icon: Parameters<typeof Icon>[0]["node"];
  isOff?: boolean;
  onClick: () => void;
}

function Tool({ name, icon, isOff = false, onClick }: ToolProps) {
  return (
    <button type="button" class="quiet icon-button" aria-label={name} title={name} disabled={isOff} onClick={onClick}>
      <Icon node={icon} />
    </button>
  );
}
