/** The button that tells the model, or the preset, and opens the list of both. */

import { ChevronDown } from "lucide";
import { useState } from "preact/hooks";
import { chooseModel, choosePreset, current } from "../state/current";
import { effortsOf, isDemo, modelForNew, models } from "../state/models";
import { setupForNew } from "../state/presets";
import { Icon } from "../ui/icon";
import { Later } from "../ui/later";
import { t } from "../words";
import { DemoMark, ModelDialog } from "./model-dialog";

const EFFORT_PICKER = () => import("../presets/effort");

export function ModelPicker() {
  const [isOpen, setOpen] = useState(false);
  const session = current.value?.session.value;
  const isAnothers = Boolean(current.value?.shared.value);
  const chosen = session ? (session.model ?? models.value.default) : (setupForNew.value.model ?? modelForNew.value);
  const { preset, params } = session ?? setupForNew.value;
  return (
    <>
      <button
        type="button"
        class="quiet model-button"
        aria-haspopup="dialog"
        title={t().model}
        onClick={() => setOpen(true)}
      >
        <span class="sr-only">{t().modelIs}</span>
        <span class="name">{preset ? `${preset} · ${chosen}` : (chosen ?? t().noModel)}</span>
        {isDemo(chosen) && <DemoMark />}
        <Icon node={ChevronDown} size={14} />
      </button>
      {!isAnothers && (effortsOf(chosen).length > 0 || "reasoning_effort" in params) && (
        <Later load={EFFORT_PICKER} model={chosen} params={params} />
      )}
      {isOpen && (
        <ModelDialog
          title={t().model}
          chosen={chosen}
          onChoose={chooseModel}
          preset={preset}
          {...(!isAnothers && { onChoosePreset: choosePreset })}
          onClose={() => setOpen(false)}
        />
      )}
    </>
  );
}
