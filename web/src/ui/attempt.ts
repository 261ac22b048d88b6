/** Something that a person asked for: whether it is going on, and what went wrong with it. */
import { useState } from "preact/hooks";
import { ApiError } from "../api";

export interface Attempt {
  isBusy: boolean;
  problem: string;
  /** The field that the problem is about, as the API names it. */
  field: string | null;
  /** Do it, once at a time. Returns whether it was done; if not, `problem` says why. */
  attempt: (what: () => Promise<unknown>) => Promise<boolean>;
}

/** Errors that are about a field without naming it. */
const FIELDS: Record<string, string> = {
  link_not_valid: "code",
  name_taken: "name",
  wrong_code: "code",
  wrong_password: "password",
};

export function useAttempt(): Attempt {
  const [isBusy, setBusy] = useState(false);
  const [failed, setFailed] = useState<Pick<Attempt, "problem" | "field">>(FINE);
  const attempt = async (what: () => Promise<unknown>) => {
    if (isBusy) return false;
    setBusy(true);
    setFailed(FINE);
    try {
      await what();
      return true;
    } catch (error) {
      setFailed({ problem: (error as Error).message, field: fieldOf(error) });
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { isBusy, ...failed, attempt };
}

const FINE = { problem: "", field: null };

function fieldOf(error: unknown): string | null {
  return error instanceof ApiError ? (error.info.param ?? FIELDS[error.code] ?? null) : null;
}
