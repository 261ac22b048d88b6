/** A session's instructions (its system prompt) and the parameters that go to the model with every run. */
import type { TargetedSubmitEvent } from "preact";
import { useMemo, useState } from "preact/hooks";
import { changeSetup, choosePreset, current } from "../state/current";
import { modelForNew } from "../state/models";
import { setupForNew } from "../state/presets";
import { complain } from "../state/toasts";
import { Dialog } from "../ui/dialog";
import { Later } from "../ui/later";
import { useLeave } from "../ui/leave";
import { t } from "../words";
import { draftOf, SetupFields, valuesOf } from "./setup-fields";

const PRESET_FORM = () => import("../presets/preset-form");

export default function SetupDialog({ onClose }: { onClose: () => void }) {
  const setup = current.value?.session.value ?? setupForNew.value;
  const [draft, setDraft] = useState(() => draftOf(setup));
  const [problem, setProblem] = useState("");
  const [asPreset, setAsPreset] = useState<ReturnType<typeof valuesOf> | null>(null);
  const now = JSON.stringify(draft);
  const isChanged = useMemo(() => now, []) !== now;
  const { onInput, leave, question } = useLeave(onClose);
  const attempt = async (what: (values: ReturnType<typeof valuesOf>) => unknown) => {
    try {
      await what(valuesOf(draft));
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const save = (event: TargetedSubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    attempt(async (values) => {
      if (isChanged) await changeSetup(values);
      onClose();
    });
  };
  return (
    <Dialog title={t().chatSettings} onClose={leave}>
      <form onSubmit={save} onInput={onInput}>
        <SetupFields draft={draft} model={setup.model ?? modelForNew.value} onChange={setDraft} />
        <p class="problem" role="alert">
          {problem}
        </p>
        <footer>
          {question}
          <button type="button" class="quiet" onClick={() => attempt(setAsPreset)}>
            {t().asPreset}
          </button>
          <button type="submit" class="primary">
            {t().save}
          </button>
        </footer>
      </form>
      {asPreset && (
        <Later
          load={PRESET_FORM}
          preset={{ ...asPreset, name: "", model: setup.model ?? modelForNew.value }}
          onSaved={(preset) => {
            choosePreset(preset).catch(complain);
            onClose();
          }}
          onClose={() => setAsPreset(null)}
        />
      )}
    </Dialog>
  );
}
