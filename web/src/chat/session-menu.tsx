/** What can be done with the whole session: its instructions, and taking it elsewhere. */
import { Braces, Ellipsis, FileText, SlidersHorizontal } from "lucide";
import { useState } from "preact/hooks";
import { current } from "../state/current";
import { Icon } from "../ui/icon";
import { Menu, MenuItem } from "../ui/menu";
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
        aria-label="Instructions and parameters"
        title="Instructions and parameters"
        onClick={() => setOpen(true)}
      >
        <Icon node={SlidersHorizontal} />
      </button>
      {transcript && (
        <Menu label="Session" icon={Ellipsis}>
          <MenuItem icon={FileText} onClick={() => exportAs(transcript.id, "markdown")}>
            Export as Markdown
          </MenuItem>
          <MenuItem icon={Braces} onClick={() => exportAs(transcript.id, "json")}>
            Export as JSON
          </MenuItem>
        </Menu>
      )}
      {isOpen && <SetupDialog onClose={() => setOpen(false)} />}
    </>
  );
}
