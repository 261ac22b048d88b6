/** Before the first prompt: which models, how, and what was compared before. */
import { EyeOff, Plus, X } from "lucide";
import { useState } from "preact/hooks";
import { ModelDialog } from "../chat/model-picker";
import { modelForNew, models, modelsState } from "../state/models";
import { Icon } from "../ui/icon";
import { AskBox } from "./ask-box";
import { Earlier } from "./earlier";
import { change, FEWEST, MOST, setup } from "./setup";
import type { OpenComparison } from "./state";

export function Start({ comparison }: { comparison: OpenComparison }) {
  const { models: chosen, blind, order, kind, system } = setup.value;
  const isReady = chosen.length >= FEWEST;
  const ask = (prompt: string) =>
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
          <h2>One prompt, several models</h2>
          <p>They answer side by side. Blind, you see which is which once you have voted.</p>
        </section>
        <Chosen />
        <Options />
        <Earlier />
      </div>
      <AskBox
        label="Prompt for all models"
        placeholder={isReady ? "Ask all of them" : `Choose at least ${FEWEST} models first`}
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
    change({ models: at! < chosen.length ? chosen.with(at!, model) : [...chosen, model] });
  return (
    <section aria-label="Models">
      <ul class="chosen-models">
        {chosen.map((model, index) => (
          <li key={index}>
            <button type="button" class="name" onClick={() => setAt(index)} title="Choose another">
              {model}
            </button>
            <button
              type="button"
              class="quiet icon-button"
              aria-label={`Remove ${model}`}
              onClick={() => change({ models: chosen.toSpliced(index, 1) })}
            >
              <Icon node={X} size={14} />
            </button>
          </li>
        ))}
        {chosen.length < MOST && (
          <li class="add">
            <button type="button" onClick={() => setAt(chosen.length)}>
              <Icon node={Plus} size={16} /> Add a model
            </button>
          </li>
        )}
      </ul>
      <p class="note">{toldOfModels(chosen)}</p>
      {at !== null && (
        <ModelDialog
          title={at < chosen.length ? "Another model" : "Add a model"}
          chosen={chosen[at] ?? (at === 0 ? modelForNew.value : null)}
          onChoose={choose}
          onClose={() => setAt(null)}
        />
      )}
    </section>
  );
}

function toldOfModels(chosen: string[]): string {
  if (modelsState.value === "failed") return "The models could not be loaded.";
  if (modelsState.value === "ready" && !models.value.models.length)
    return "No provider offers a model yet. See Settings.";
  if (chosen.length < FEWEST) return `Two to eight models; one may be there twice.`;
  if (new Set(chosen).size < chosen.length) return "A vote between a model and itself rates nobody.";
  return "";
}

function Options() {
  const { blind, order, kind, system } = setup.value;
  return (
    <section class="compare-options" aria-label="How">
      <label class="switch">
        <input type="checkbox" checked={blind} onChange={() => change({ blind: !blind })} />
        <Icon node={EyeOff} size={16} /> Blind
      </label>
      <label class="switch">
        <input
          type="checkbox"
          checked={order === "sequential"}
          onChange={() => change({ order: order === "parallel" ? "sequential" : "parallel" })}
        />
        One after the other
      </label>
      <details>
        <summary>More</summary>
        <label>
          Kind (a category for the scores)
          <input
            type="text"
            maxLength={64}
            placeholder="general"
            value={kind}
            onInput={(event) => change({ kind: event.currentTarget.value })}
          />
        </label>
        <label>
          Instructions for all models
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
