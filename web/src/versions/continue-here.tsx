/** Goes on from a place in a run's log: the new answer begins with what had been said up to there. */
import { Play } from "lucide";
import { navigate } from "../router";
import { complain } from "../state/toasts";
import type { Run } from "../types";
import { Icon } from "../ui/icon";
import { v } from "../words/versions";
import { versions } from "./calls";

export function ContinueHere({ run, after }: { run: Run; after: number }) {
  if (!run.session_id) return null;
  const goOn = async () => {
    try {
      await versions.forkRun(run.id, after);
      navigate(`/s/${run.session_id}`);
    } catch (error) {
      complain(error);
    }
  };
  return (
    <button type="button" class="small" onClick={goOn}>
      <Icon node={Play} size={14} /> {v().continueHere}
    </button>
  );
}
