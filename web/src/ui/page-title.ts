/** The title of the tab: how many chats wait for their user or have something new, and what is shown. */
import { useEffect } from "preact/hooks";
import { unreadCount } from "../notifications/unread";
import { waitingCount } from "../state/attention";

export function usePageTitle(title: string, isRunning = false): void {
  const waiting = waitingCount.value + unreadCount.value;
  useEffect(() => {
    const mark = waiting ? `(${waiting}) ` : isRunning ? "● " : "";
    document.title = `${mark}${title ? `${title} · ` : ""}Holdfast`;
  }, [title, isRunning, waiting]);
}
