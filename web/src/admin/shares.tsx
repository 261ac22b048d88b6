/** What anyone shares: by a link or with a group. An admin revokes any of it. */

import { useState } from "preact/hooks";
import { call } from "../api";
import { complain } from "../state/toasts";
import { Confirm } from "../ui/confirm";
import { Shown, useLoaded } from "../ui/loaded";
import { t } from "../words";
import { moment } from "../words/count";
import { a } from "../words/people";

interface Share {
  id: string;
  owner: string;
  /** The name of the person whose it is; empty for a service's. */
  person: string;
  group_name: string | null;
  may: "read" | "write";
  created_at: string;
  expires_at: string | null;
}

interface Page {
  shares: Share[];
  next: string | null;
}

const PATH = "/api/admin/shares";

function page(before: string | null): Promise<Page> {
  return call<Page>("GET", before === null ? PATH : `${PATH}?${new URLSearchParams({ before })}`);
}

export function Shares() {
  const first = useLoaded(() => page(null));
  const [more, setMore] = useState<Page | null>(null);
  const [revoked, setRevoked] = useState<Share | null>(null);
  const words = a();
  const showMore = async (before: string) => {
    try {
      const { shares, next } = await page(before);
      setMore({ shares: [...(more?.shares ?? []), ...shares], next });
    } catch (error) {
      complain(error);
    }
  };
  const revoke = async (id: string) => {
    await call<void>("DELETE", `${PATH}/${id}`);
    setMore(null);
    await first.load();
  };
  return (
    <>
      <Shown of={first}>
        {({ shares, next }) => {
          const after = more ? more.next : next;
          if (!shares.length) return <p class="note empty-list">{words.noShares}</p>;
          return (
            <>
              <ul class="cards">
                {[...shares, ...(more?.shares ?? [])].map((share) => (
                  <Line key={share.id} share={share} onRevoke={() => setRevoked(share)} />
                ))}
              </ul>
              {after && (
                <button type="button" onClick={() => showMore(after)}>
                  {t().showMore}
                </button>
              )}
            </>
          );
        }}
      </Shown>
      {revoked && (
        <Confirm
          title={words.revokeShare(revoked.person || revoked.owner)}
          action={t().revoke}
          onConfirm={() => revoke(revoked.id)}
          onClose={() => setRevoked(null)}
        >
          <p>{words.revokeShareWhy}</p>
        </Confirm>
      )}
    </>
  );
}

function Line({ share, onRevoke }: { share: Share; onRevoke: () => void }) {
  const words = a();
  const person = share.person || share.owner;
  return (
    <li>
      <div>
        <strong dir="auto">{person}</strong>
        <span class="badge">{share.group_name === null ? words.byLink : words.withGroup(share.group_name)}</span>
        <p class="note">
          {[
            words.sharedAt(moment(share.created_at, "short")),
            share.expires_at ? words.expiresAt(moment(share.expires_at, "short")) : words.neverExpires,
          ].join(" · ")}
        </p>
      </div>
      <button type="button" class="small" aria-label={words.revokeShare(person)} onClick={onRevoke}>
        {t().revoke}
      </button>
    </li>
  );
}
