/** What can be done with the whole session: its instructions, and taking it elsewhere. */
import { Braces, Ellipsis, FileText, SlidersHorizontal } from "lucide";
import { useState } from "preact/hooks";
import { current } from "../state/current";
import { Icon } from "../ui/icon";
import { Menu, MenuItem } from "../ui/menu";
import { t } from "../words";
import { exportAs } from "./export";
import { SetupDialog } from "./setup-dialog";

export function SessionMenu() {
  const [isOpen, setOpen] = useState(false);
  const transcript = current.value;
  return (
    <>
      <button
        type="button"
        class="quiet icon-button"
        aria-label={t().setup}
        title={t().setup}
        onClick={() => setOpen(true)}
      >
        <Icon node={SlidersHorizontal} />
      </button>
      {transcript && (
        <Menu label={t().session} icon={Ellipsis}>
          <MenuItem icon={FileText} onClick={() => exportAs(transcript.id, "markdown")}>
            {t().exportMarkdown}
          </MenuItem>
          <MenuItem icon={Braces} onClick={() => exportAs(transcript.id, "json")}>
            {t().exportJson}
          </MenuItem>
        </Menu>
      )}
      {isOpen && <SetupDialog onClose={() => setOpen(false)} />}
    </>
  );
}
