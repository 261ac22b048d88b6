/** Before the first prompt: which models, how, and what was compared before. */
import { EyeOff, Plus, X } from "lucide";
import { useState } from "preact/hooks";
import { ModelDialog } from "../chat/model-dialog";
import { modelForNew, models, modelsState } from "../state/models";
import type { Content } from "../types";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { AskBox } from "./ask-box";
import { Earlier } from "./earlier";
import { change, FEWEST, MOST, setup } from "./setup";
import type { OpenComparison } from "./state";

export function Start({ comparison }: { comparison: OpenComparison }) {
  const { models: chosen, blind, order, kind, system } = setup.value;
  const isReady = chosen.length >= FEWEST;
  const ask = (prompt: Content) =>
    comparison.create({
      prompt,
      models: chosen,
      blind,
      order,
      ...(kind.trim() && { kind: kind.trim() }),
      ...(system.trim() && { system: system.trim() }),
    });
  return (
    <>
      <div class="compare-start">
        <section class="intro">
          <h2>{t().onePrompt}</h2>
          <p>{t().onePromptMore}</p>
        </section>
        <Chosen />
        <Options />
        <Earlier />
      </div>
      <AskBox
        label={t().promptForAll}
        placeholder={isReady ? t().messageAll : t().chooseFirst(FEWEST)}
        canSend={isReady && !comparison.isOurs.value}
        onSend={ask}
      />
    </>
  );
}

function Chosen() {
  const [at, setAt] = useState<number | null>(null);
  const { models: chosen } = setup.value;
  const choose = (model: string) =>
    change({ models: at !== null && at < chosen.length ? chosen.with(at, model) : [...chosen, model] });
  return (
    <section aria-label={t().models}>
      <ul class="chosen-models">
        {chosen.map((model, index) => (
          <li key={index}>
            <button type="button" class="name" onClick={() => setAt(index)} title={t().changeModel}>
              {model}
            </button>
            <button
              type="button"
              class="quiet icon-button"
              aria-label={t().removeModel(model)}
              onClick={() => change({ models: chosen.toSpliced(index, 1) })}
            >
              <Icon node={X} size={14} />
            </button>
          </li>
        ))}
        {chosen.length < MOST && (
          <li class="add">
            <button type="button" onClick={() => setAt(chosen.length)}>
              <Icon node={Plus} size={16} /> {t().addModel}
            </button>
          </li>
        )}
      </ul>
      <p class="note">{toldOfModels(chosen)}</p>
      {at !== null && (
        <ModelDialog
          title={at < chosen.length ? t().changeModel : t().addModel}
          chosen={chosen[at] ?? (at === 0 ? modelForNew.value : null)}
          onChoose={choose}
          onClose={() => setAt(null)}
        />
      )}
    </section>
  );
}

function toldOfModels(chosen: string[]): string {
  if (modelsState.value === "failed") return t().modelsFailed;
  if (modelsState.value === "ready" && !models.value.models.length) return t().noModelsYet;
  if (chosen.length < FEWEST) return t().twoToEight;
  if (new Set(chosen).size < chosen.length) return t().sameTwice;
  return "";
}

function Options() {
  const { blind, order, kind, system } = setup.value;
  return (
    <section class="compare-options" aria-label={t().options}>
      <label class="switch">
        <input type="checkbox" checked={blind} onChange={() => change({ blind: !blind })} />
        <Icon node={EyeOff} size={16} /> {t().blind}
      </label>
      <label class="switch">
        <input
          type="checkbox"
          checked={order === "sequential"}
          onChange={() => change({ order: order === "parallel" ? "sequential" : "parallel" })}
        />
        {t().sequential}
      </label>
      <details>
        <summary>{t().moreOptions}</summary>
        <label>
          {t().category}
          <input
            type="text"
            maxLength={64}
            placeholder={t().general}
            value={kind}
            onInput={(event) => change({ kind: event.currentTarget.value })}
          />
        </label>
        <label>
          {t().systemPrompt}
          <textarea
            rows={3}
            dir="auto"
            value={system}
            onInput={(event) => change({ system: event.currentTarget.value })}
          />
        </label>
      </details>
    </section>
  );
}
