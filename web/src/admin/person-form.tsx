/** A person as an admin adds or changes them. Who is added gets a link to set a password. */

import type { Role } from "../api";
import { BudgetFields, budgetIn } from "../people/budget-fields";
import { type Account, calls, type Group, type ResetLink } from "../people/calls";
import { FormDialog } from "../ui/form-dialog";
import { t } from "../words";
import { a } from "../words/people";

const ROLES: Role[] = ["guest", "member", "admin"];

interface PersonFormProps {
  /** Null for a new one. */
  person: Account | null;
  groups: Group[];
  onSaved: (person: Account, link: ResetLink | null) => void;
  onClose: () => void;
}

export function PersonForm({ person, groups, onSaved, onClose }: PersonFormProps) {
  const words = a();
  const save = async (given: FormData) => {
    const body = {
      name: String(given.get("name")).trim(),
      email: String(given.get("email")).trim(),
      role: String(given.get("role")) as Role,
      groups: given.getAll("groups").map(String),
      budget: budgetIn(given, ""),
    };
    if (!person) {
      const { reset, ...added } = await calls.addPerson(body);
      onSaved(added, reset);
    } else onSaved(await calls.changePerson(person.id, { ...body, disabled: given.has("disabled") }), null);
  };
  return (
    <FormDialog
      title={person ? words.editPerson(person.name) : words.addPerson}
      action={person ? t().save : words.addPerson}
      onSave={save}
      onClose={onClose}
    >
      <div class="fields">
        <label>
          {t().name}
          <input type="text" name="name" required maxLength={64} dir="auto" defaultValue={person?.name} />
        </label>
        <label>
          {words.emailOptional}
          <input type="email" name="email" maxLength={256} dir="ltr" defaultValue={person?.email} />
        </label>
      </div>
      <fieldset class="choices stacked">
        <legend>{words.role}</legend>
        {ROLES.map((role) => (
          <label key={role}>
            <input type="radio" name="role" value={role} defaultChecked={role === (person?.role ?? "member")} />
            <span>
              {words.roles[role]} <span class="note">{words.roleNotes[role]}</span>
            </span>
          </label>
        ))}
      </fieldset>
      {groups.length > 0 && (
        <fieldset class="choices">
          <legend>{words.groups}</legend>
          {groups.map(({ id, name }) => (
            <label key={id}>
              <input type="checkbox" name="groups" value={id} defaultChecked={person?.groups.includes(id)} />
              {name}
            </label>
          ))}
        </fieldset>
      )}
      <BudgetFields title={words.limitsTitle} prefix="" budget={person?.budget} />
      {person ? (
        <label class="check">
          <input type="checkbox" name="disabled" defaultChecked={person.disabled} /> {words.disable}
        </label>
      ) : (
        <p>{words.addPersonNote}</p>
      )}
    </FormDialog>
  );
}
