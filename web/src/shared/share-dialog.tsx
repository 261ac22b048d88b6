/** Shares a chat: by a link, which is shown once, or with a group; and lists and ends what is shared. */
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { complain } from "../state/toasts";
import "../styles/shared.css";
import type { GroupName, NewLink, Share } from "../types";
import { useAttempt } from "../ui/attempt";
import { CopyButton } from "../ui/copy";
import { Dialog } from "../ui/dialog";
import { useElement } from "../ui/element";
import { Problem } from "../ui/problem";
import { s } from "../words/sharing";
import { type Included, shares, type Wanted } from "./calls";
import { ShareList } from "./share-list";

const DAY = 86_400;
const LASTING: [keyof ReturnType<typeof s>["days"], number][] = [
  ["day", DAY],
  ["week", 7 * DAY],
  ["month", 30 * DAY],
  ["never", 0],
];
const DEFAULT_LASTING = 7 * DAY;
const INCLUDED: Included[] = ["tools", "reasoning", "system", "names"];

export default function ShareDialog({ session, onClose }: { session: string; onClose: () => void }) {
  const [list, setList] = useState<Share[] | null>(null);
  const [groups, setGroups] = useState<GroupName[]>([]);
  const [link, setLink] = useState("");
  const load = () =>
    shares.of(session).then((found) => {
      setList(found.shares);
      setGroups(found.groups);
    }, complain);
  useEffect(() => {
    load();
  }, []);
  const show = async (made: Promise<NewLink>) => {
    const { token } = await made;
    setLink(token ? `${location.origin}/shared/${token}` : "");
    await load();
  };
  return (
    <Dialog title={s().shareChat} onClose={onClose} class="share-dialog">
      <ShareForm groups={groups} onMake={(wanted) => show(shares.make(session, wanted))} />
      {link && <MadeLink link={link} />}
      <section aria-label={s().shared}>
        {list?.length === 0 && <p class="note">{s().nothing}</p>}
        {list && <ShareList list={list} onChange={load} onReplace={(share) => show(shares.replace(share))} />}
      </section>
    </Dialog>
  );
}

function ShareForm({ groups, onMake }: { groups: GroupName[]; onMake: (wanted: Wanted) => Promise<void> }) {
  const [group, setGroup] = useState("");
  const trying = useAttempt();
  const make = (event: SubmitEvent) => {
    event.preventDefault();
    const wanted = wantedIn(new FormData(event.currentTarget as HTMLFormElement));
    trying.attempt(() => onMake(wanted));
  };
  return (
    <form onSubmit={make}>
      {groups.length > 0 && (
        <label>
          {s().shareWith}
          <select name="group" value={group} onChange={(event) => setGroup(event.currentTarget.value)}>
            <option value="">{s().anyone}</option>
            {groups.map(({ id, name }) => (
              <option key={id} value={id}>
                {s().group(name)}
              </option>
            ))}
          </select>
        </label>
      )}
      {group ? <OfGroup /> : <OfLink />}
      <Problem of={trying} />
      <footer>
        <button type="submit" class="primary" disabled={trying.isBusy}>
          {group ? s().shareNow : s().create}
        </button>
      </footer>
    </form>
  );
}

function wantedIn(form: FormData): Wanted {
  const group = String(form.get("group") ?? "");
  const seconds = Number(form.get("lasting"));
  const expires_in = seconds || null;
  if (group) return { group, may: form.get("may") === "write" ? "write" : "read", expires_in };
  return {
    follow: form.get("follow") === "yes",
    include: INCLUDED.filter((each) => form.has(each)),
    sign_in: form.has("sign_in"),
    expires_in,
  };
}

function OfLink() {
  return (
    <>
      <Either
        name="follow"
        legend={s().shows}
        options={[
          ["no", s().asItIs],
          ["yes", s().follows],
        ]}
      />
      <Lasting />
      <fieldset class="choices">
        <legend>{s().also}</legend>
        {INCLUDED.map((each) => (
          <label class="check" key={each}>
            <input type="checkbox" name={each} />
            {s()[each]}
          </label>
        ))}
      </fieldset>
      <label class="check">
        <input type="checkbox" name="sign_in" />
        {s().signIn}
      </label>
    </>
  );
}

function OfGroup() {
  return (
    <>
      <Either
        name="may"
        legend={s().groupMay}
        options={[
          ["read", s().mayRead],
          ["write", s().mayWrite],
        ]}
      />
      <Lasting />
    </>
  );
}

function Either({ name, legend, options }: { name: string; legend: string; options: [string, string][] }) {
  return (
    <fieldset class="choices">
      <legend>{legend}</legend>
      {options.map(([value, label], index) => (
        <label key={value}>
          <input type="radio" name={name} value={value} defaultChecked={index === 0} />
          {label}
        </label>
      ))}
    </fieldset>
  );
}

function Lasting() {
  return (
    <label>
      {s().expires}
      <select name="lasting">
        {LASTING.map(([name, seconds]) => (
          <option key={name} value={seconds} selected={seconds === DEFAULT_LASTING}>
            {s().days[name]}
          </option>
        ))}
      </select>
    </label>
  );
}

function MadeLink({ link }: { link: string }) {
  const shown = useElement<HTMLInputElement>();
  useLayoutEffect(() => shown.current.focus(), [link]);
  return (
    <div class="made-link" role="status">
      <label>
        {s().link}
        <span class="with-button">
          <input
            type="text"
            ref={shown}
            readOnly
            value={link}
            dir="ltr"
            onFocus={(event) => event.currentTarget.select()}
          />
          <CopyButton text={link} label={s().copyLink} />
        </span>
      </label>
      <p class="note">{s().copyNow}</p>
    </div>
  );
}
