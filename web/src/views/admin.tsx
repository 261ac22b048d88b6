/** What admins do: people, groups, keys, limits, usage, audit and shares. Each is a tab with an address of its own. */

import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { Audit } from "../admin/audit";
import { Groups } from "../admin/groups";
import { People } from "../admin/people";
import { Shares } from "../admin/shares";
import { Keys } from "../people/keys";
import { UsageTable } from "../people/usage";
import { caller, isAdmin } from "../state/caller";
import { a } from "../words/people";
import "../styles/people.css";
import "../styles/settings.css";
import "../styles/views.css";
import { useElement } from "../ui/element";
import { Empty } from "../ui/empty";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { t } from "../words";

const TABS = ["people", "groups", "keys", "usage", "audit", "shares"] as const;
type TabName = (typeof TABS)[number];

const SHOWN: Record<TabName, ComponentType> = {
  people: People,
  groups: Groups,
  keys: AllKeys,
  usage: AllUsage,
  audit: Audit,
  shares: Shares,
};

export default function AdminView({ id }: { id: string | null }) {
  usePageTitle(a().admin);
  return (
    <>
      <ViewHeader title={a().admin} />
      {isAdmin.value ? <Tabs wanted={id} /> : <NoAdmin />}
    </>
  );
}

function NoAdmin() {
  if (!caller.value) return <output class="loading" aria-label={t().loading} />;
  return <Empty title={a().onlyAdmins} text={a().onlyAdminsWhy} />;
}

function Tabs({ wanted }: { wanted: string | null }) {
  const current = TABS.find((name) => name === wanted) ?? "people";
  const Current = SHOWN[current];
  const tabs = useElement<HTMLElement>();
  useEffect(() => tabs.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" }), [current]);
  return (
    <div class="page settings admin">
      <nav class="tabs" ref={tabs} aria-label={a().admin}>
        {TABS.map((name) => (
          <a key={name} href={`/admin/${name}`} aria-current={name === current ? "page" : undefined}>
            {a().tabs[name]}
          </a>
        ))}
      </nav>
      <section aria-labelledby="tab-title">
        <h2 id="tab-title">{a().tabs[current]}</h2>
        <Current key={current} />
      </section>
    </div>
  );
}

function AllKeys() {
  return (
    <>
      <p class="note">{a().allKeysNote}</p>
      <Keys path="/api/admin/keys" scopes={["read", "chat", "batch", "admin"]} />
    </>
  );
}

function AllUsage() {
  return <UsageTable path="/api/admin/usage" />;
}
