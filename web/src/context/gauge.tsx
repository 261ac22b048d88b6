/** How full the model's window is: a button, with what can be done about it. Without a known window there is none. */

import { useEffect, useState } from "preact/hooks";
import { current } from "../state/current";
import { Dialog } from "../ui/dialog";
import { t } from "../words";
import { percent } from "../words/count";
import { compact, context, isAutomatic, keepContext, setAutomatic } from "./state";

export function ContextGauge() {
  const [isOpen, setOpen] = useState(false);
  useEffect(keepContext, []);
  const chat = current.value;
  const { tokens = 0, window = null } = context.value ?? {};
  if (!chat || chat.isTemporary || window === null) return null;
  const share = tokens / window;
  return (
    <>
      <button
        type="button"
        class={`quiet small gauge ${share >= 0.85 ? "is-full" : ""}`}
        title={t().contextUsed(tokens, window)}
        aria-label={t().contextUsed(tokens, window)}
        onClick={() => setOpen(true)}
      >
        <span class="gauge-bar" aria-hidden="true">
          <i style={{ inlineSize: `${Math.min(100, 100 * share)}%` }} />
        </span>
        {percent(share)}
      </button>
      {isOpen && (
        <Dialog title={t().contextWindow} onClose={() => setOpen(false)} class="context-dialog">
          <p>{t().contextUsed(tokens, window)}</p>
          <p>{t().compactExplained}</p>
          <label class="check">
            <input
              type="checkbox"
              checked={isAutomatic.value}
              onChange={(event) => setAutomatic(event.currentTarget.checked)}
            />
            {t().compactAutomatically}
          </label>
          <footer>
            <button
              type="button"
              class="primary"
              disabled={chat.isRunning.value || !chat.mayWrite.value}
              onClick={() => {
                setOpen(false);
                compact(chat);
              }}
            >
              {t().compactChat}
            </button>
          </footer>
        </Dialog>
      )}
    </>
  );
}
