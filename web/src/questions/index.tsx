/** What an agent asks its user. The run waits until there is an answer, and the question outlives restarts. */
import type { LiveRun } from "../state/live";
import { Later } from "../ui/later";

const CARD = () => import("./card");

export function Questions({ live, isTemporary }: { live: LiveRun; isTemporary: boolean }) {
  return live.open.map(({ asked }) => (
    <Later key={asked.id} load={CARD} asked={asked} runId={live.id} isTemporary={isTemporary} />
  ));
}
