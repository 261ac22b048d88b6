/** Shares as a list: whom each is for, for how long, and the button that ends it. */
import { toast } from "../state/toasts";
import type { Share } from "../types";
import { useAttempt } from "../ui/attempt";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { moment } from "../words/count";
import { s } from "../words/sharing";
import { shares } from "./calls";

interface ShareListProps {
  list: Share[];
  onChange: () => void;
  /** A link is not shown again: it can be replaced by another. */
  onReplace?: (share: Share) => Promise<void>;
  hasTitles?: boolean;
}

export function ShareList({ list, onChange, onReplace, hasTitles = false }: ShareListProps) {
  const trying = useAttempt();
  const revoke = async ({ id }: Share) => {
    if (await trying.attempt(() => shares.revoke(id))) toast(s().revoked);
    onChange();
  };
  return (
    <>
      <ul class="cards shares">
        {list.map((share) => (
          <li key={share.id} data-share={share.id}>
            <div>
              {hasTitles ? (
                <a href={`/s/${share.session_id}`} dir="auto">
                  {share.title || t().untitled}
                </a>
              ) : (
                <strong>{whom(share)}</strong>
              )}
              <p class="note">{details(share, hasTitles)}</p>
            </div>
            {onReplace && !share.group && (
              <button
                type="button"
                class="small"
                aria-label={s().newLinkOf(whom(share))}
                onClick={() => trying.attempt(() => onReplace(share))}
              >
                {s().newLink}
              </button>
            )}
            <button
              type="button"
              class="small"
              aria-label={s().revokeOf(hasTitles ? `${share.title || t().untitled}, ${whom(share)}` : whom(share))}
              onClick={() => revoke(share)}
            >
              {s().revoke}
            </button>
          </li>
        ))}
      </ul>
      <Problem of={trying} />
    </>
  );
}

function whom(share: Share): string {
  return share.group ? s().group(share.group_name ?? share.group) : s().byLink;
}

function details(share: Share, hasTitles: boolean): string {
  const what = share.group
    ? share.may === "write"
      ? s().mayWrite
      : s().mayRead
    : share.follows
      ? s().live
      : s().fixed;
  return [
    hasTitles && whom(share),
    what,
    share.sign_in && s().signIn,
    moment(share.created_at, "short"),
    share.expires_at && s().until(moment(share.expires_at, "short")),
  ]
    .filter(Boolean)
    .join(" · ");
}
