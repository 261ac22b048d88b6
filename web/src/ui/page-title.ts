/** The title of the tab: how many chats wait for their user, and what is shown. */
import { useEffect } from "preact/hooks";
import { waitingCount } from "../state/attention";

export function usePageTitle(title: string, isRunning = false): void {
  const waiting = waitingCount.value;
  useEffect(() => {
    const mark = waiting ? `(${waiting}) ` : isRunning ? "● " : "";
    document.title = `${mark}${title ? `${title} · ` : ""}Holdfast`;
  }, [title, isRunning, waiting]);
}
