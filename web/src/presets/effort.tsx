/** How much a model reasons, for models that can be told. */
import { chooseEffort } from "../state/current";
import { effortsOf } from "../state/models";
import "../styles/presets.css";
import { p } from "../words/presets";

export default function EffortPicker({ model, params }: { model: string | null; params: Record<string, unknown> }) {
  const efforts = effortsOf(model);
  const set = params.reasoning_effort;
  const chosen = typeof set === "string" ? set : "";
  if (!efforts.length && !chosen) return null;
  return (
    <select
      class={`quiet effort ${chosen ? "is-set" : ""}`}
      aria-label={p().effort}
      title={p().effort}
      value={chosen}
      onChange={(event) => chooseEffort(event.currentTarget.value)}
    >
      <option value="">{p().effortDefault}</option>
      {[...new Set([...efforts, ...(chosen ? [chosen] : [])])].map((effort) => (
        <option key={effort} value={effort}>
          {(p().efforts as Record<string, string>)[effort] ?? effort}
        </option>
      ))}
    </select>
  );
}
