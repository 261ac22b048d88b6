/** Who may use an agent: all, admins, or people and groups that are chosen. */
import { useState } from "preact/hooks";
import { calls } from "../people/calls";
import { Shown, useLoaded } from "../ui/loaded";
import { w } from "../words/agents";

type Who = "tools" | "all" | "admins" | "chosen";
const WHO: Who[] = ["tools", "all", "admins", "chosen"];
const SENT: Record<Who, string[] | null> = { tools: null, all: ["*"], admins: [], chosen: [] };
const MOST = 200;

interface UserFieldsProps {
  users: string[] | null;
  onChange: (users: string[] | null) => void;
}

export function UserFields({ users, onChange }: UserFieldsProps) {
  const [who, setWho] = useState<Who>(() => whoOf(users));
  const choose = (chosen: Who) => {
    setWho(chosen);
    onChange(SENT[chosen]);
  };
  return (
    <>
      <label>
        {w().users}
        <select value={who} onChange={(event) => choose(event.currentTarget.value as Who)}>
          {WHO.map((each) => (
            <option key={each} value={each} selected={each === who}>
              {w().who[each]}
            </option>
          ))}
        </select>
      </label>
      {who === "chosen" && <Choice users={users ?? []} onChange={onChange} />}
    </>
  );
}

function whoOf(users: string[] | null): Who {
  if (users === null) return "tools";
  if (users.includes("*")) return "all";
  return users.length ? "chosen" : "admins";
}

function Choice({ users, onChange }: { users: string[]; onChange: (users: string[]) => void }) {
  const groups = useLoaded(calls.groups);
  const people = useLoaded(() => calls.people(null, MOST));
  const toggle = (id: string) => onChange(users.includes(id) ? users.filter((each) => each !== id) : [...users, id]);
  const line = ({ id, name }: { id: string; name: string }) => (
    <label class="check" key={id}>
      <input type="checkbox" checked={users.includes(id)} onChange={() => toggle(id)} /> <span dir="auto">{name}</span>
    </label>
  );
  return (
    <fieldset class="tool-choice">
      <legend>{w().chosen}</legend>
      <Shown of={groups}>{({ groups: listed }) => listed.map(line)}</Shown>
      <Shown of={people}>{({ people: listed }) => listed.map(line)}</Shown>
    </fieldset>
  );
}
