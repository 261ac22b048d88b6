/** What can be done with a whole chat: its settings, its name, its exports, its end. */
import {
  Braces,
  Copy,
  Ellipsis,
  FileText,
  FolderInput,
  FolderOpen,
  FoldVertical,
  Pencil,
  Pin,
  PinOff,
  Share2,
  SlidersHorizontal,
  Trash2,
} from "lucide";
import { useState } from "preact/hooks";
import { compact } from "../context/state";
import { organized } from "../filing/chosen";
import type { ChatDialog } from "../notifications/menu-items";
import { navigate } from "../router";
import type { Conversation } from "../state/conversation";
import { current } from "../state/current";
import { hasFiles } from "../state/models";
import { setupForNew } from "../state/presets";
import { removeWithUndo, rename, setPinned } from "../state/sessions";
import { complain } from "../state/toasts";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icon";
import { Later } from "../ui/later";
import { lazily } from "../ui/lazily";
import { Menu, MenuItem } from "../ui/menu";
import { t } from "../words";

const SETUP_DIALOG = () => import("./setup-dialog");
const WORKSPACE = () => import("../agents/workspace");
const SHARE_DIALOG = () => import("../shared/share-dialog");
const NOTIFICATIONS = () => import("../notifications/menu-items");

export function SessionMenu() {
  const [isOpen, setOpen] = useState(false);
  const [isRenaming, setRenaming] = useState(false);
  const [isSharing, setSharing] = useState(false);
  const [isBrowsing, setBrowsing] = useState(false);
  const [shown, setShown] = useState<{ Dialog: ChatDialog } | null>(null);
  const transcript = current.value?.isTemporary ? null : current.value; // a temporary one has only settings
  if (transcript?.shared.value) return null; // only its owner changes it
  const { system, params } = current.value?.session.value ?? setupForNew.value;
  const isSetUp = Boolean(system) || Object.keys(params).length > 0;
  const model = transcript?.session.value?.model ?? "";
  const agent = hasFiles(model) ? model.split(/^agent\//)[1] : undefined;
  const isPinned = transcript?.session.value?.pinned ?? false;
  return (
    <>
      <button
        type="button"
        class={`quiet icon-button ${isSetUp ? "is-set" : transcript ? "wide-only" : ""}`}
        aria-label={t().chatSettings}
        title={isSetUp ? t().chatSettingsSet : t().chatSettings}
        disabled={transcript !== null && !transcript.session.value}
        onClick={() => setOpen(true)}
      >
        <Icon node={SlidersHorizontal} />
      </button>
      {transcript && (
        <button
          type="button"
          class="quiet icon-button wide-only"
          aria-label={t().share}
          title={t().share}
          onClick={() => setSharing(true)}
        >
          <Icon node={Share2} />
        </button>
      )}
      {transcript && (
        <Menu label={t().chatActions} icon={Ellipsis}>
          <MenuItem icon={Share2} kind="narrow-only" onClick={() => setSharing(true)}>
            {t().share}
          </MenuItem>
          <MenuItem icon={SlidersHorizontal} kind="narrow-only" onClick={() => setOpen(true)}>
            {t().chatSettings}
          </MenuItem>
          <MenuItem icon={Pencil} onClick={() => setRenaming(true)}>
            {t().rename}
          </MenuItem>
          <MenuItem icon={isPinned ? PinOff : Pin} onClick={() => setPinned(transcript.id, !isPinned).catch(complain)}>
            {isPinned ? t().unpin : t().pin}
          </MenuItem>
          <MenuItem
            icon={FolderInput}
            onClick={() => {
              organized.value = [transcript.id];
            }}
          >
            {t().organize}
          </MenuItem>
          <Later load={NOTIFICATIONS} show={(Dialog: ChatDialog) => setShown({ Dialog })} />
          <MenuItem icon={FoldVertical} onClick={() => compact(transcript)}>
            {t().compactChat}
          </MenuItem>
          {agent && (
            <MenuItem icon={FolderOpen} onClick={() => setBrowsing(true)}>
              {t().agentFiles}
            </MenuItem>
          )}
          <MenuItem icon={FileText} onClick={() => saveAs(transcript.id, "markdown")}>
            {t().exportMarkdown}
          </MenuItem>
          <MenuItem icon={Copy} onClick={() => copyChat(transcript.id)}>
            {t().copyMarkdown}
          </MenuItem>
          <MenuItem icon={Braces} onClick={() => saveAs(transcript.id, "json")}>
            {t().exportJson}
          </MenuItem>
          <MenuItem icon={Trash2} kind="bad" onClick={() => remove(transcript.id)}>
            {t().delete}
          </MenuItem>
        </Menu>
      )}
      {isSharing && transcript && (
        <Later load={SHARE_DIALOG} session={transcript.id} onClose={() => setSharing(false)} />
      )}
      {isBrowsing && agent && <Later load={WORKSPACE} agent={agent} onClose={() => setBrowsing(false)} />}
      {shown && transcript && <shown.Dialog session={transcript.id} onClose={() => setShown(null)} />}
      {isOpen && <Later load={SETUP_DIALOG} onClose={() => setOpen(false)} />}
      {isRenaming && transcript && <RenameDialog transcript={transcript} onClose={() => setRenaming(false)} />}
    </>
  );
}

async function saveAs(id: string, kind: "markdown" | "json"): Promise<void> {
  const { exportAs } = await lazily(() => import("./export"));
  await exportAs(id, kind);
}

async function copyChat(id: string): Promise<void> {
  const { copyMarkdown } = await lazily(() => import("./export"));
  await copyMarkdown(id);
}

function remove(id: string): void {
  removeWithUndo(id, "", () => navigate(`/s/${id}`));
  navigate("/");
}

function RenameDialog({ transcript, onClose }: { transcript: Conversation; onClose: () => void }) {
  const save = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const title = String(new FormData(form).get("title") ?? "").trim();
    if (title) rename(transcript.id, title).catch(complain);
    onClose();
  };
  return (
    <Dialog title={t().rename} onClose={onClose} class="narrow">
      <form onSubmit={save}>
        <label>
          {t().title}
          <input name="title" type="text" dir="auto" required defaultValue={transcript.session.value?.title} />
        </label>
        <footer>
          <button type="submit" class="primary">
            {t().save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
