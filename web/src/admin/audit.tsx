/** Who did what to what, from where, and with which result; the newest first. */

import { Download } from "lucide";
import { useEffect, useState } from "preact/hooks";
import { call } from "../api";
import { complain } from "../state/toasts";
import { Icon } from "../ui/icon";
import { Shown, useLoaded } from "../ui/loaded";
import { saveFrom } from "../ui/save";
import { t } from "../words";
import { moment } from "../words/count";
import { a } from "../words/people";
import { Find } from "./find";

interface Entry {
  id: string;
  at: string;
  actor: string;
  action: string;
  target: string | null;
  /** The name of the person, the group or the key that `target` is the id of. */
  target_name: string;
  address: string | null;
  result: string;
  /** The entry of its beginning, if this is its end. */
  of?: string;
}

interface Page {
  entries: Entry[];
  next: string | null;
}

const PATH = "/api/admin/audit";

/** The first parts of actions, as the server names them. */
const KINDS = [
  "account",
  "agent",
  "approval",
  "audit",
  "batch",
  "chats",
  "comparison",
  "conversation",
  "erasure",
  "first_admin",
  "grant",
  "group",
  "input",
  "key",
  "mcp",
  "mcp_account",
  "notifications",
  "outcome",
  "passkey",
  "password",
  "person",
  "preset",
  "prompt",
  "response",
  "schedule",
  "second_factor",
  "session",
  "settings",
  "share",
  "sign_in",
  "sign_ins",
  "sign_out",
  "trigger",
];

/** What is wanted of the log; everything, where a text is empty. */
interface Filter {
  actor: string;
  action: string;
  reads: boolean;
}

function pathOf({ actor, action, reads }: Filter, page: { before?: string; format?: "jsonl" } = {}): string {
  return `${PATH}?${new URLSearchParams({ ...page, reads: String(reads), ...(actor && { actor }), ...(action && { action }) })}`;
}

export function Audit() {
  const [filter, setFilter] = useState<Filter>({ actor: "", action: "", reads: false });
  const narrow = (by: Partial<Filter>) => setFilter((now) => ({ ...now, ...by }));
  const first = useLoaded(() => call<Page>("GET", pathOf(filter)), pathOf(filter));
  const [more, setMore] = useState<Page | null>(null);
  const words = a();
  useEffect(() => setMore(null), [first.state]);
  const showMore = async (before: string) => {
    try {
      const { entries, next } = await call<Page>("GET", pathOf(filter, { before }));
      setMore({ entries: [...(more?.entries ?? []), ...entries], next });
    } catch (error) {
      complain(error);
    }
  };
  return (
    <>
      <p class="note">{words.auditNote}</p>
      <div class="line">
        <Find onFind={(actor) => narrow({ actor })} />
        <select
          aria-label={words.actionKind}
          value={filter.action}
          onChange={(event) => narrow({ action: event.currentTarget.value })}
        >
          <option value="">{words.allActions}</option>
          {KINDS.map((kind) => (
            <option key={kind}>{kind}</option>
          ))}
        </select>
        <label class="check">
          <input
            type="checkbox"
            checked={filter.reads}
            onChange={(event) => narrow({ reads: event.currentTarget.checked })}
          />
          {words.showReads}
        </label>
      </div>
      <Shown of={first}>
        {({ entries, next }) => {
          const after = more ? more.next : next;
          return (
            <>
              <Entries
                entries={[...entries, ...(more?.entries ?? [])]}
                isFiltered={filter.actor !== "" || filter.action !== ""}
              />
              <div class="line">
                {after && (
                  <button type="button" onClick={() => showMore(after)}>
                    {t().showMore}
                  </button>
                )}
                <button type="button" onClick={() => saveFrom(pathOf(filter, { format: "jsonl" }), "audit.jsonl")}>
                  <Icon node={Download} size={14} /> {t().saveJsonLines}
                </button>
              </div>
            </>
          );
        }}
      </Shown>
    </>
  );
}

function Entries({ entries: all, isFiltered }: { entries: Entry[]; isFiltered: boolean }) {
  const words = a();
  const ended = new Set(all.map((entry) => entry.of));
  const entries = all.filter(({ id }) => !ended.has(id)); // the end of a change tells all that its beginning does
  if (!entries.length) return <p class="note empty-list">{isFiltered ? t().noResults : words.noAudit}</p>;
  return (
    <div class="table-place" tabIndex={0} role="group" aria-label={words.tabs.audit}>
      <table class="stacks">
        <thead>
          <tr>
            <th scope="col">{t().time}</th>
            <th scope="col">{words.person}</th>
            <th scope="col">{words.action}</th>
            <th scope="col">{t().result}</th>
            <th scope="col">{words.address}</th>
            <th scope="col">{words.target}</th>
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <tr key={entry.id}>
              <td>{moment(entry.at)}</td>
              <td dir="auto">{entry.actor}</td>
              <td dir="ltr">{entry.action}</td>
              <td dir="ltr">{entry.result}</td>
              <td dir="ltr">{entry.address}</td>
              <td dir="auto" title={entry.target ?? undefined}>
                {entry.target_name || entry.target}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
