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
import { choice, choose, LANGUAGES, t } from "../words";

export default function Settings() {
  useEffect(() => {
    load();
  }, []);
  const title = t().settings;
  useEffect(() => {
    document.title = `${title} · Holdfast`;
  }, [title]);
  return (
    <>
      <ViewHeader title={title}>
        <a class="button quiet small" href="/runs">
          {t().allRuns}
        </a>
      </ViewHeader>
      <div class="page settings">
        <OfTheServer />
        <Appearance />
        {key.value && <OwnKey />}
        <section aria-labelledby="keyboard">
          <h2 id="keyboard">{t().keyboard}</h2>
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
        <h2>{t().settingsFailed}</h2>
        <p class="note">{problem.value}</p>
        <button type="button" onClick={load}>
          {t().tryAgain}
        </button>
      </section>
    );
  }
  if (!set) return <output class="loading" aria-label={t().loading} />;
  return (
    <>
      {!set.editable && <p class="note">{t().onlyAdmin}</p>}
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
      <h2 id="appearance">{t().appearance}</h2>
      <Choices
        name={t().theme}
        value={theme.value}
        onChange={setTheme}
        options={[
          ["system", t().asTheSystem],
          ["light", t().light],
          ["dark", t().dark],
        ]}
      />
      <Choices
        name={t().spacing}
        value={density.value}
        onChange={setDensity}
        options={[
          ["roomy", t().roomy],
          ["dense", t().dense],
        ]}
      />
      <Choices
        name={t().language}
        value={choice.value}
        onChange={choose}
        options={[["system", t().asTheSystem], ...LANGUAGES]}
      />
      <p class="note">{t().languageNote}</p>
    </section>
  );
}

function OwnKey() {
  return (
    <section>
      <h2>{t().yourKey}</h2>
      <p class="note">{t().yourKeyNote}</p>
      <button
        type="button"
        onClick={() => {
          setKey("");
          location.reload();
        }}
      >
        {t().forgetKeyNow}
      </button>
    </section>
  );
}
