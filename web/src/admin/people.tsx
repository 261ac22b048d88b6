/** The people of the server: found by name, paged through, added, changed and deleted. */

import { Link2, Pencil, Plus, ShieldOff, Trash2 } from "lucide";
import { useEffect, useState } from "preact/hooks";
import { limitsIn } from "../people/budget-fields";
import { type Account, calls, type Group, linkOf, type ResetLink } from "../people/calls";
import { Secret } from "../people/secret";
import { caller } from "../state/caller";
import { complain } from "../state/toasts";
import { Confirm } from "../ui/confirm";
import { Icon } from "../ui/icon";
import { Shown, useLoaded } from "../ui/loaded";
import { t } from "../words";
import { moment } from "../words/count";
import { a } from "../words/people";
import { Find } from "./find";
import { PersonForm } from "./person-form";

const PAGE = 50;

interface Listed {
  people: Account[];
  /** Where the next page starts; null at the end. */
  next: string | null;
  groups: Group[];
}

/** Ask for the first page, or for those with a part of a name; with the groups, whose names are shown. */
async function list(part: string): Promise<Listed> {
  const [{ people, before }, { groups }] = await Promise.all([
    part ? calls.findPeople(part) : calls.people(null, PAGE),
    calls.groups(),
  ]);
  return { people, groups, next: nextOf(people, before) };
}

function nextOf(people: Account[], before: string | null): string | null {
  return people.length === PAGE ? before : null;
}

type Open =
  | { is: "form" | "delete" | "factor"; person: Account | null }
  | { is: "link"; name: string; link: ResetLink };

export function People() {
  const [name, setName] = useState("");
  const people = useLoaded(() => list(name), name);
  const [more, setMore] = useState<{ people: Account[]; next: string | null } | null>(null);
  const [open, setOpen] = useState<Open | null>(null);
  const words = a();
  useEffect(() => setMore(null), [people.state]);
  const showMore = async (next: string) => {
    try {
      const page = await calls.people(next, PAGE);
      setMore({ people: [...(more?.people ?? []), ...page.people], next: nextOf(page.people, page.before) });
    } catch (error) {
      complain(error);
    }
  };
  const saved = async (person: Account, link: ResetLink | null) => {
    setOpen(link && { is: "link", name: person.name, link });
    await people.load();
  };
  const makeLink = async (person: Account) => {
    try {
      setOpen({ is: "link", name: person.name, link: (await calls.resetLink(person.id)).reset });
    } catch (error) {
      complain(error);
    }
  };
  const groups = people.state.is === "ready" ? people.state.value.groups : [];
  const close = (closed: Open) => setOpen((now) => (now === closed ? null : now));
  return (
    <>
      <div class="line">
        <Find onFind={setName} />
        <button type="button" class="primary" onClick={() => setOpen({ is: "form", person: null })}>
          <Icon node={Plus} size={16} /> {words.addPerson}
        </button>
      </div>
      <Shown of={people}>
        {({ people: first, next }) => {
          const shown = [...first, ...(more?.people ?? [])];
          const after = more ? more.next : next;
          if (!shown.length) return <p class="note empty-list">{name ? words.nobodyFound : words.noPeople}</p>;
          return (
            <>
              <ul class="cards">
                {shown.map((person) => (
                  <Line
                    key={person.id}
                    person={person}
                    groups={groups}
                    onOpen={setOpen}
                    onLink={() => makeLink(person)}
                  />
                ))}
              </ul>
              {after && (
                <button type="button" onClick={() => showMore(after)}>
                  {t().showMore}
                </button>
              )}
            </>
          );
        }}
      </Shown>
      {open?.is === "form" && (
        <PersonForm person={open.person} groups={groups} onSaved={saved} onClose={() => close(open)} />
      )}
      {open?.is === "link" && (
        <Secret
          title={words.linkFor(open.name)}
          note={words.linkNote}
          label={words.resetLink}
          secret={linkOf(open.link)}
          onClose={() => close(open)}
        />
      )}
      {open?.is === "factor" && open.person && (
        <ResetFactor person={open.person} onReset={people.load} onClose={() => close(open)} />
      )}
      {open?.is === "delete" && open.person && (
        <Delete person={open.person} onDeleted={people.load} onClose={() => close(open)} />
      )}
    </>
  );
}

interface LineProps {
  person: Account;
  groups: Group[];
  onOpen: (open: Open) => void;
  onLink: () => void;
}

function Line({ person, groups, onOpen, onLink }: LineProps) {
  const words = a();
  const isOneself = caller.value?.account === person.id;
  return (
    <li data-person={person.name}>
      <div>
        <strong dir="auto">{person.name}</strong>
        <span class="badge">{words.roles[person.role]}</span>
        {isOneself && <span class="badge fine">{t().you}</span>}
        {person.disabled && <span class="badge bad">{words.disabled}</span>}
        {person.second_factor && <span class="badge fine">{words.secondFactor}</span>}
        {!person.has_password && <span class="badge warning">{words.noPassword}</span>}
        <p class="note">
          {[
            person.email,
            ...groups.filter(({ id }) => person.groups.includes(id)).map((group) => group.name),
            ...limitsIn(person.budget ?? {}),
            person.signed_in_at ? words.signedInAt(moment(person.signed_in_at, "short")) : words.neverSignedIn,
          ]
            .filter(Boolean)
            .join(" · ")}
        </p>
      </div>
      <span class="ends">
        {person.second_factor && (
          <button
            type="button"
            class="quiet icon-button"
            aria-label={words.resetFactorOf(person.name)}
            title={words.resetFactor}
            onClick={() => onOpen({ is: "factor", person })}
          >
            <Icon node={ShieldOff} size={16} />
          </button>
        )}
        <button
          type="button"
          class="quiet icon-button"
          aria-label={words.resetLinkFor(person.name)}
          title={words.resetLink}
          onClick={onLink}
        >
          <Icon node={Link2} size={16} />
        </button>
        <button
          type="button"
          class="quiet icon-button"
          aria-label={words.editPerson(person.name)}
          title={t().edit}
          onClick={() => onOpen({ is: "form", person })}
        >
          <Icon node={Pencil} size={16} />
        </button>
        <button
          type="button"
          class="quiet icon-button"
          aria-label={words.deletePerson(person.name)}
          title={t().delete}
          onClick={() => onOpen({ is: "delete", person })}
        >
          <Icon node={Trash2} size={16} />
        </button>
      </span>
    </li>
  );
}

interface ResetFactorProps {
  person: Account;
  onReset: () => Promise<void>;
  onClose: () => void;
}

function ResetFactor({ person, onReset, onClose }: ResetFactorProps) {
  const words = a();
  const reset = async () => {
    await calls.resetFactor(person.id);
    await onReset();
  };
  return (
    <Confirm title={words.resetFactorOf(person.name)} action={words.resetFactor} onConfirm={reset} onClose={onClose}>
      <p>{words.resetFactorWhy}</p>
    </Confirm>
  );
}

interface DeleteProps {
  person: Account;
  onDeleted: () => Promise<void>;
  onClose: () => void;
}

function Delete({ person, onDeleted, onClose }: DeleteProps) {
  const words = a();
  const remove = async (form: HTMLFormElement) => {
    await calls.deletePerson(person.id, String(new FormData(form).get("data")));
    await onDeleted();
  };
  return (
    <Confirm title={words.deletePerson(person.name)} action={t().delete} onConfirm={remove} onClose={onClose}>
      <p>{words.deletePersonWhy}</p>
      <fieldset class="choices stacked">
        <legend>{words.theirData}</legend>
        {(["keep", "delete"] as const).map((choice) => (
          <label key={choice}>
            <input type="radio" name="data" value={choice} required /> {words.dataChoices[choice]}
          </label>
        ))}
      </fieldset>
    </Confirm>
  );
}
