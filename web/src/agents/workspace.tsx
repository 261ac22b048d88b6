/** The files that an agent has written for its user: to browse, to look at and to save. */
import { FileText, Folder } from "lucide";
import { useState } from "preact/hooks";
import { call, download } from "../api";
import Preview from "../files/preview";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icon";
import { Shown, useLoaded } from "../ui/loaded";
import { bytes, moment } from "../words/count";
import { w } from "../words/workspace";
import "../styles/workspace.css";

interface Entry {
  name: string;
  kind: "file" | "folder" | "other";
  size: number;
  changed_at: string;
}

interface Listing {
  entries: Entry[];
  /** How many are left out. */
  more: number;
}

export default function Workspace({ agent, onClose }: { agent: string; onClose: () => void }) {
  const [path, setPath] = useState<string[]>([]);
  const [open, setOpen] = useState<string | null>(null);
  const base = `/api/agents/${encodeURIComponent(agent)}/files`;
  const at = (names: string[]) => `?${new URLSearchParams({ path: names.join("/") })}`;
  const listed = useLoaded(() => call<Listing>("GET", base + at(path)), path.join("/"));
  if (open !== null)
    return (
      <Preview
        name={open}
        bytes={() => download(`${base}/content${at([...path, open])}`)}
        onClose={() => setOpen(null)}
      />
    );
  return (
    <Dialog title={w().title(agent)} onClose={onClose} class="workspace">
      <nav aria-label={w().folders}>
        {["", ...path].map((name, depth) => (
          <button
            key={depth}
            type="button"
            class="link"
            aria-current={depth === path.length ? "location" : undefined}
            onClick={() => setPath(path.slice(0, depth))}
          >
            <bdi>{name || w().top}</bdi>
          </button>
        ))}
      </nav>
      <Shown of={listed}>
        {({ entries, more }) => (
          <>
            {!entries.length && <p class="note">{w().none}</p>}
            <ul>
              {entries.map((entry) => (
                <li key={entry.name}>
                  <button
                    type="button"
                    class="quiet"
                    disabled={entry.kind === "other"}
                    onClick={() => (entry.kind === "folder" ? setPath([...path, entry.name]) : setOpen(entry.name))}
                  >
                    <Icon node={entry.kind === "folder" ? Folder : FileText} size={16} />
                    <bdi>{entry.name}</bdi>
                    <small>{factsOf(entry)}</small>
                  </button>
                </li>
              ))}
            </ul>
            {more > 0 && <p class="note">{w().more(more)}</p>}
          </>
        )}
      </Shown>
    </Dialog>
  );
}

function factsOf({ kind, size, changed_at }: Entry): string {
  if (kind === "other") return w().noFile;
  return kind === "folder" ? moment(changed_at, "short") : `${bytes(size)} · ${moment(changed_at, "short")}`;
}
