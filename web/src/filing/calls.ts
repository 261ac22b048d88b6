/** The calls for folders, tags and the archive. */
import { call } from "../api";

export interface Label {
  name: string;
  /** How many chats have it that are not archived. */
  sessions: number;
}

export interface Labels {
  folders: Label[];
  tags: Label[];
  archived: number;
}

export interface Filing {
  folder?: string;
  add_tags?: string[];
  remove_tags?: string[];
  archived?: boolean;
}

const MOST = 200;

export const calls = {
  labels: () => call<Labels>("GET", "/api/labels"),
  /** File chats; those that are gone are left out. */
  file: async (ids: readonly string[], change: Filing): Promise<void> => {
    for (let at = 0; at < ids.length; at += MOST) {
      await call("POST", "/api/sessions/file", { body: { sessions: ids.slice(at, at + MOST), ...change } });
    }
  },
  rename: (kind: "folder" | "tag", name: string, to = "") =>
    call<{ sessions: number }>("POST", "/api/labels/rename", { body: { kind, name, to } }),
};
