/** The calls about shares: made, listed, revoked; and what others share with this person. */
import { call } from "../api";
import type { GroupName, NewLink, Share, SharedList } from "../types";

export type Included = Share["include"][number];

export interface Wanted {
  group?: string;
  may?: "read" | "write";
  follow?: boolean;
  message_id?: string | null;
  include?: Included[];
  sign_in?: boolean;
  /** In seconds; null for no end. */
  expires_in: number | null;
}

export const shares = {
  of: (session: string) => call<{ shares: Share[]; groups: GroupName[] }>("GET", `/api/sessions/${session}/shares`),
  mine: () => call<{ shares: Share[] }>("GET", "/api/shares"),
  make: (session: string, body: Wanted) => call<NewLink>("POST", `/api/sessions/${session}/shares`, { body }),
  /** Make a link like another, which it replaces. */
  replace: async ({ id, session_id, message_id, follows, include, sign_in, expires_at }: Share) => {
    const expires_in = expires_at && Math.max(1, (Date.parse(expires_at) - Date.now()) / 1_000);
    const made = await shares.make(session_id, {
      follow: follows,
      message_id,
      include,
      sign_in,
      expires_in: expires_in || null,
    });
    await shares.revoke(id);
    return made;
  },
  revoke: (id: string) => call<void>("DELETE", `/api/shares/${id}`),
  withMe: () => call<{ sessions: SharedList[] }>("GET", "/api/shared-sessions"),
};
