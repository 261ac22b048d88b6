/** The folders and tags of this person, and what is done with chats in one go. */
import { signal } from "@preact/signals";
import { api } from "../api";
import { loadSessions, sessions } from "../state/sessions";
import { complain, toast } from "../state/toasts";
import type { ListedSession } from "../types";
import { t } from "../words";
import { f } from "../words/filing";
import { calls, type Filing, type Labels } from "./calls";
import { chooseNone } from "./chosen";

export const labels = signal<Labels>({ folders: [], tags: [], archived: 0 });

let asked = 0;
let known = "";

export async function loadLabels(): Promise<void> {
  const mine = ++asked;
  const found = await calls.labels();
  if (mine === asked) labels.value = found;
}

/** Load the labels again if one of the chats that are listed is filed in another way. */
export function followLabels(list: ListedSession[]): ReturnType<typeof setTimeout> | undefined {
  const filed = list.filter(({ folder, tags, archived }) => folder || tags.length || archived);
  const now = JSON.stringify(filed.map(({ id, folder, tags, archived }) => [id, folder, tags, archived]).sort());
  if (now === known) return;
  known = now;
  return setTimeout(() => loadLabels().catch(() => {}), 150); // the page tells if the server is away
}

/** What a chat is filed by. */
export type Filed = Pick<ListedSession, "id" | "folder" | "tags" | "archived">;

/** The chats with these ids, as they are now. One that the list does not show is asked for. */
export async function filedOf(ids: readonly string[]): Promise<Filed[]> {
  const shown = new Map(sessions.value.map((session) => [session.id, session]));
  return Promise.all(ids.map((id) => shown.get(id) ?? api.session(id)));
}

/** File chats, with a way back. */
export async function file(ids: readonly string[], change: Filing, done: string): Promise<void> {
  const before = await filedOf(ids);
  await calls.file(ids, change);
  chooseNone();
  await reload();
  toast(done, { action: { label: t().undo, run: () => putBack(before, change).catch(complain) } });
}

async function putBack(before: Filed[], change: Filing): Promise<void> {
  for (const { id, folder, tags, archived } of before) {
    const added = change.add_tags?.filter((tag) => !tags.includes(tag)) ?? [];
    const removed = change.remove_tags?.filter((tag) => tags.includes(tag)) ?? [];
    await calls.file([id], { folder, archived, add_tags: removed, remove_tags: added });
  }
  await reload();
}

export async function rename(kind: "folder" | "tag", name: string, to = ""): Promise<void> {
  await calls.rename(kind, name, to);
  await reload();
}

async function reload(): Promise<void> {
  await Promise.all([loadSessions(), loadLabels()]);
}

export const archive = (ids: readonly string[], archived: boolean): Promise<void> =>
  file(ids, { archived }, archived ? f().archivedNow(ids.length) : f().unarchived(ids.length));
