/** The browsers in which a person is signed in: this one is marked, any other can be signed out. */

import { complain, toast } from "../state/toasts";
import { Shown, useLoaded } from "../ui/loaded";
import { t } from "../words";
import { moment } from "../words/count";
import { a } from "../words/people";
import { browserOf } from "./browser-names";
import { calls, type SignIn } from "./calls";

/** `asked` changes when the list may have changed elsewhere on the page. */
export function SignIns({ asked }: { asked: number }) {
  const signIns = useLoaded(calls.signIns, asked);
  const words = a();
  const end = async (id: string) => {
    await calls.endSignIn(id).catch(complain);
    await signIns.load();
  };
  const endOthers = async () => {
    try {
      const { ended } = await calls.endOtherSignIns();
      toast(words.signedOutOthers(ended));
    } catch (error) {
      complain(error);
    }
    await signIns.load();
  };
  return (
    <section aria-labelledby="sign-ins">
      <h2 id="sign-ins">{words.signIns}</h2>
      <Shown of={signIns}>
        {({ sign_ins: listed }) => (
          <>
            <ul class="cards">
              {listed.map((signIn) => (
                <Line key={signIn.id} signIn={signIn} onEnd={() => end(signIn.id)} />
              ))}
            </ul>
            {listed.length > 1 && (
              <button type="button" onClick={endOthers}>
                {words.signOutOthers}
              </button>
            )}
          </>
        )}
      </Shown>
    </section>
  );
}

function Line({ signIn, onEnd }: { signIn: SignIn; onEnd: () => void }) {
  const words = a();
  const browser = browserOf(signIn.agent) ?? words.unknownBrowser;
  return (
    <li data-sign-in={signIn.id}>
      <div>
        <strong>{browser}</strong>
        {signIn.current && <span class="badge fine">{words.thisBrowser}</span>}
        <p class="note">
          {[
            signIn.address,
            words.signedInAt(moment(signIn.began_at, "short")),
            words.lastUsed(moment(signIn.seen_at, "short")),
          ]
            .filter(Boolean)
            .join(" · ")}
        </p>
      </div>
      {!signIn.current && (
        <button type="button" class="small" aria-label={words.signOutOf(browser)} onClick={onEnd}>
          {t().signOut}
        </button>
      )}
    </li>
  );
}
