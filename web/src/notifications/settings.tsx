/** What the person is told of, whether in this browser, and the page as an app. */

import { useState } from "preact/hooks";
import { complain } from "../state/toasts";
import { Shown, useLoaded } from "../ui/loaded";
import { n } from "../words/notifications";
import { isBlocked, turnOff, turnOn } from "./browser";
import { calls, type Told } from "./calls";
import { WantedChoice } from "./choice";
import { offer } from "./install";
import { notifies } from "./notifies";
import { Webhooks } from "./webhooks";
import "../styles/people.css";

type Choices = Partial<Pick<Told, "notify" | "shows_text">>;

export default function Notifications() {
  const told = useLoaded(calls.told);
  const [chosen, setChosen] = useState<Choices>({}); // here: an answer to an earlier change knows nothing of it
  const change = (changes: Choices) => {
    setChosen((before) => ({ ...before, ...changes }));
    calls.choose(changes).catch((error) => {
      setChosen({});
      complain(error);
      told.load();
    });
  };
  const turn = (isOn: boolean) => (isOn ? turnOn() : turnOff()).then(() => told.load(), complain);
  return (
    <section aria-labelledby="notifications">
      <h2 id="notifications">{n().notifications}</h2>
      <label class="check">
        <input
          type="checkbox"
          checked={notifies.value !== null}
          onChange={({ currentTarget }) => turn(currentTarget.checked)}
        />
        {n().inThisBrowser}
      </label>
      {isBlocked.value && <p class="problem">{n().notifyBlocked}</p>}
      {notifies.value === "page" && <p class="note">{n().onlyWhileOpen}</p>}
      <Shown of={told}>
        {({ notify, shows_text, webhooks }) => (
          <>
            <WantedChoice value={chosen.notify ?? notify} onChange={(value) => value && change({ notify: value })} />
            <label class="check">
              <input
                type="checkbox"
                checked={chosen.shows_text ?? shows_text}
                onChange={({ currentTarget }) => change({ shows_text: currentTarget.checked })}
              />
              {n().showsText}
            </label>
            <Webhooks webhooks={webhooks} onChange={told.load} />
          </>
        )}
      </Shown>
      {offer.value && (
        <button type="button" onClick={offer.value}>
          {n().install}
        </button>
      )}
    </section>
  );
}
