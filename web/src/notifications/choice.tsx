/** What someone wants to be told of, in general or of one chat. */
import { n } from "../words/notifications";
import type { Wanted } from "./calls";

interface WantedChoiceProps {
  value: Wanted | null;
  onChange: (value: Wanted | null) => void;
  /** The first option, for what is chosen in general; without it one must be chosen here. */
  inherited?: string;
}

export function WantedChoice({ value, onChange, inherited }: WantedChoiceProps) {
  const options: [Wanted | null, string][] = [
    ["all", n().all],
    ["needs_you", n().needsYou],
    ["none", n().none],
  ];
  if (inherited) options.unshift([null, inherited]);
  return (
    <fieldset class="choices">
      <legend>{n().toldOf}</legend>
      {options.map(([each, label]) => (
        <label key={each}>
          <input type="radio" name="told of" checked={value === each} onChange={() => onChange(each)} />
          {label}
        </label>
      ))}
    </fieldset>
  );
}
