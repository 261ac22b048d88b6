/** Says that the server is away, for as long as it is: nothing is lost, and nothing has to be done. */
import { useEffect, useState } from "preact/hooks";
import { isAway } from "./api";
import { isNotSaving } from "./state/away";
import { t } from "./words";

export function AwayBanner() {
  const away = isAway.value;
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    if (!away) return setShown(false);
    const timer = setTimeout(() => setShown(true), 700); // a restart that nobody notices needs no banner
    return () => clearTimeout(timer);
  }, [away]);
  return (
    <div role="status" class="away-place">
      {isShown && (
        <div class="away">
          <span class="pulse" aria-hidden="true" />
          {t().reconnecting}
        </div>
      )}
    </div>
  );
}

/** Says that a response stands still because the server cannot save it. */
export function NotSavingBanner() {
  return (
    <div role="status" class="away-place">
      {isNotSaving.value && (
        <div class="away">
          <span class="pulse" aria-hidden="true" />
          {t().notSaving}
        </div>
      )}
    </div>
  );
}
