/** Settings: of the server, where one may change them, and of this browser. */
import { useEffect } from "preact/hooks";
import { key, setKey } from "../api";
import { Shortcuts } from "../help";
import { DefaultModel, Fallbacks } from "../settings/models";
import { Providers } from "../settings/providers";
import { load, problem, settings } from "../settings/state";
import { density, setDensity, setTheme, theme } from "../state/preferences";
import "../styles/settings.css";
import "../styles/views.css";
import { ViewHeader } from "../ui/view-header";

export default function Settings() {
  useEffect(() => {
    document.title = "Settings · Holdfast";
    load();
  }, []);
  return (
    <>
      <ViewHeader title="Settings">
        <a class="button quiet small" href="/runs">
          All runs
        </a>
      </ViewHeader>
      <div class="page settings">
        <OfTheServer />
        <Appearance />
        {key.value && <OwnKey />}
        <section aria-labelledby="keyboard">
          <h2 id="keyboard">Keyboard</h2>
          <Shortcuts />
        </section>
      </div>
    </>
  );
}

function OfTheServer() {
  const set = settings.value;
  if (problem.value && !set) {
    return (
      <section>
        <h2>The server's settings could not be loaded</h2>
        <p class="note">{problem.value}</p>
        <button type="button" onClick={load}>
          Try again
        </button>
      </section>
    );
  }
  if (!set) return <output class="loading" aria-label="Loading" />;
  return (
    <>
      {!set.editable && <p class="note">Only a key with admin rights can change the server's settings.</p>}
      <Providers settings={set} />
      <DefaultModel settings={set} />
      <Fallbacks settings={set} />
    </>
  );
}

interface ChoicesProps<T extends string> {
  name: string;
  value: T;
  options: [T, string][];
  onChange: (value: T) => void;
}

function Choices<T extends string>({ name, value, options, onChange }: ChoicesProps<T>) {
  return (
    <fieldset class="choices">
      <legend>{name}</legend>
      {options.map(([each, label]) => (
        <label key={each}>
          <input type="radio" name={name} checked={value === each} onChange={() => onChange(each)} />
          {label}
        </label>
      ))}
    </fieldset>
  );
}

function Appearance() {
  return (
    <section aria-labelledby="appearance">
      <h2 id="appearance">Appearance</h2>
      <Choices
        name="Theme"
        value={theme.value}
        onChange={setTheme}
        options={[
          ["system", "As the system"],
          ["light", "Light"],
          ["dark", "Dark"],
        ]}
      />
      <Choices
        name="Density"
        value={density.value}
        onChange={setDensity}
        options={[
          ["roomy", "Roomy"],
          ["dense", "Dense"],
        ]}
      />
    </section>
  );
}

function OwnKey() {
  return (
    <section>
      <h2>Your key</h2>
      <p class="note">This tab has a key of the server. It is forgotten when the tab is closed.</p>
      <button
        type="button"
        onClick={() => {
          setKey("");
          location.reload();
        }}
      >
        Forget it now
      </button>
    </section>
  );
}
