/** Settings: of the server, where one may change them, and of this browser. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { Accounts } from "../agents/accounts";
import { Permissions } from "../agents/permissions";
import { key } from "../api";
import { Shortcuts } from "../help";
import { withoutKey } from "../people/passing";
import { DefaultModel, Fallbacks, TitleModel } from "../settings/models";
import { Providers } from "../settings/providers";
import { load, problem, settings } from "../settings/state";
import { OwnShares } from "../shared/own-shares";
import { caller, isGuest } from "../state/caller";
import { density, setDensity, setTheme, setWhileRunning, theme, whileRunning } from "../state/preferences";
import { w } from "../words/agents";
import { a } from "../words/people";
import "../styles/settings.css";
import "../styles/views.css";
import { Later } from "../ui/later";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { choice, choose, LANGUAGES, t } from "../words";

const IMPORT = () => import("../importing/import");
const NOTIFICATIONS = () => import("../notifications/settings");
/** The address of these settings with this hash opens the form for a new provider. */
const ADD_PROVIDER = "#add-provider";

export default function Settings() {
  useEffect(() => {
    load();
  }, []);
  const title = t().settings;
  usePageTitle(title);
  return (
    <>
      <ViewHeader title={title} />
      <div class="page settings">
        <Group name={t().settingsOfServer}>
          <OfTheServer isAdding={location.hash === ADD_PROVIDER} />
          {caller.value?.via === "local" && <AddAccounts />}
        </Group>
        <Group name={t().settingsOfYou}>
          {caller.value && !isGuest.value && <Accounts />}
          <Permissions />
          <OwnShares />
          <Later load={IMPORT} />
        </Group>
        <Group name={t().settingsOfBrowser}>
          <Appearance />
          <Later load={NOTIFICATIONS} />
          {key.value && <OwnKey />}
          <section aria-labelledby="keyboard">
            <h2 id="keyboard">{t().keyboardShortcuts}</h2>
            <Shortcuts />
          </section>
        </Group>
      </div>
    </>
  );
}

/** What belongs together: settings of the server, of the person, of this browser. */
function Group({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="settings-group" role="group" aria-label={name}>
      <p class="group-title" aria-hidden="true">
        {name}
      </p>
      {children}
    </div>
  );
}

function OfTheServer({ isAdding }: { isAdding: boolean }) {
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
      <Providers settings={set} isAdding={isAdding} />
      <DefaultModel settings={set} />
      <Fallbacks settings={set} />
      {set.editable && <TitleModel settings={set} />}
      {set.editable && (
        <section aria-labelledby="agents">
          <h2 id="agents">{w().title}</h2>
          <p class="note">{w().settingsNote}</p>
          <a class="button" href="/agents">
            {w().open}
          </a>
        </section>
      )}
      {set.editable && (
        <section aria-labelledby="status">
          <h2 id="status">{t().status}</h2>
          <p class="note">{t().statusNote}</p>
          <a class="button" href="/status">
            {t().openStatus}
          </a>
        </section>
      )}
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
          ["system", t().system],
          ["light", t().light],
          ["dark", t().dark],
        ]}
      />
      <Choices
        name={t().spacing}
        value={density.value}
        onChange={setDensity}
        options={[
          ["roomy", t().comfortable],
          ["dense", t().compact],
        ]}
      />
      <Choices
        name={t().language}
        value={choice.value}
        onChange={choose}
        options={[["system", t().system], ...LANGUAGES]}
      />
      <Choices
        name={t().whileRunning}
        value={whileRunning.value}
        onChange={setWhileRunning}
        options={[
          ["queue", t().queue],
          ["steer", t().steer],
          ["interrupt", t().interrupt],
        ]}
      />
      <p class="note">{t().languageNote}</p>
    </section>
  );
}

/** The only user of this machine can let others in. */
function AddAccounts() {
  return (
    <section aria-labelledby="accounts">
      <h2 id="accounts">{a().accounts}</h2>
      <p class="note">{a().addAccountsNote}</p>
      <a class="button" href="/first-admin">
        {a().addAccounts}
      </a>
    </section>
  );
}

function OwnKey() {
  return (
    <section>
      <h2>{t().account}</h2>
      <p class="note">{t().accountNote}</p>
      <button type="button" onClick={() => void withoutKey().then(() => location.reload())}>
        {t().signOut}
      </button>
    </section>
  );
}
