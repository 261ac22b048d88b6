/** Says that the server is away, for as long as it is: nothing is lost, and nothing has to be done. */
import { useEffect, useState } from "preact/hooks";
import { isAway } from "./api";
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
          {t().away}
        </div>
      )}
    </div>
  );
}
