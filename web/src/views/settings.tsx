/** Settings of this browser. */
import { key, setKey } from "../api";
import { setTheme, type Theme, theme } from "../state/preferences";
import { ViewHeader } from "../ui/view-header";

const THEMES: [Theme, string][] = [
  ["system", "As the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];

export default function Settings() {
  return (
    <>
      <ViewHeader title="Settings" />
      <div class="page">
        <section>
          <h2>Appearance</h2>
          <fieldset class="choices">
            <legend>Theme</legend>
            {THEMES.map(([value, label]) => (
              <label key={value}>
                <input type="radio" name="theme" checked={theme.value === value} onChange={() => setTheme(value)} />
                {label}
              </label>
            ))}
          </fieldset>
        </section>
        {key.value && (
          <section>
            <h2>Key</h2>
            <p>This tab has a key of the server. It is forgotten when the tab is closed.</p>
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
        )}
      </div>
    </>
  );
}
