/** Something that a person asked for: whether it is going on, and what went wrong with it. */
import { useState } from "preact/hooks";

export interface Attempt {
  isBusy: boolean;
  problem: string;
  /** Do it, once at a time. Returns whether it was done; if not, `problem` says why. */
  attempt: (what: () => Promise<unknown>) => Promise<boolean>;
}

export function useAttempt(): Attempt {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const attempt = async (what: () => Promise<unknown>) => {
    if (isBusy) return false;
    setBusy(true);
    setProblem("");
    try {
      await what();
      return true;
    } catch (error) {
      setProblem((error as Error).message);
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { isBusy, problem, attempt };
}
