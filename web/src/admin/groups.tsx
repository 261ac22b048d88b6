/** Groups: the models and the agents that their people have. */

import { Pencil, Plus, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { BudgetFields, budgetIn, limitsIn } from "../people/budget-fields";
import { type Budget, calls, type Group } from "../people/calls";
import { patternsIn } from "../people/patterns";
import { Confirm } from "../ui/confirm";
import { FormDialog } from "../ui/form-dialog";
import { Icon } from "../ui/icon";
import { Shown, useLoaded } from "../ui/loaded";
import { t } from "../words";
import { a } from "../words/people";

type Open = { is: "form"; group: Group | null } | { is: "delete"; group: Group };

export function Groups() {
  const groups = useLoaded(calls.groups);
  const [open, setOpen] = useState<Open | null>(null);
  const words = a();
  const close = () => setOpen(null);
  return (
    <>
      <p class="note">{words.groupsNote}</p>
      <Shown of={groups}>
        {({ groups: listed }) =>
          listed.length ? (
            <ul class="cards">
              {listed.map((group) => (
                <Line key={group.id} group={group} onOpen={setOpen} />
              ))}
            </ul>
          ) : (
            <p class="note empty-list">{words.noGroups}</p>
          )
        }
      </Shown>
      <button type="button" onClick={() => setOpen({ is: "form", group: null })}>
        <Icon node={Plus} size={16} /> {words.addGroup}
      </button>
      {open?.is === "form" && <GroupForm group={open.group} onSaved={groups.load} onClose={close} />}
      {open?.is === "delete" && (
        <Confirm
          title={words.deleteGroup(open.group.name)}
          action={t().delete}
          onConfirm={async () => {
            await calls.deleteGroup(open.group.id);
            await groups.load();
          }}
          onClose={close}
        >
          <p>{words.deleteGroupWhy}</p>
        </Confirm>
      )}
    </>
  );
}

function Line({ group, onOpen }: { group: Group; onOpen: (open: Open) => void }) {
  const words = a();
  return (
    <li data-group={group.name}>
      <div>
        <strong dir="auto">{group.name}</strong>
        <p class="note">
          {group.models ? words.modelsLimited(group.models.join(", ")) : words.allModels}
          {group.agents.length > 0 && ` · ${words.agentsLimited(group.agents.join(", "))}`}
        </p>
        <LimitsNote title={words.limitsOfEach} budget={group.each} />
        <LimitsNote title={words.limitsOfAll} budget={group.budget} />
      </div>
      <span class="ends">
        <button
          type="button"
          class="quiet icon-button"
          aria-label={words.editGroup(group.name)}
          title={t().edit}
          onClick={() => onOpen({ is: "form", group })}
        >
          <Icon node={Pencil} size={16} />
        </button>
        <button
          type="button"
          class="quiet icon-button"
          aria-label={words.deleteGroup(group.name)}
          title={t().delete}
          onClick={() => onOpen({ is: "delete", group })}
        >
          <Icon node={Trash2} size={16} />
        </button>
      </span>
    </li>
  );
}

function LimitsNote({ title, budget }: { title: string; budget: Budget | undefined }) {
  const limits = limitsIn(budget ?? {});
  if (!limits.length) return null;
  return (
    <p class="note">
      {title}: {limits.join(" · ")}
    </p>
  );
}

interface GroupFormProps {
  group: Group | null;
  onSaved: () => Promise<void>;
  onClose: () => void;
}

function GroupForm({ group, onSaved, onClose }: GroupFormProps) {
  const words = a();
  const save = async (given: FormData) => {
    const body = {
      name: String(given.get("name")).trim(),
      models: patternsIn(given.get("models")),
      agents: patternsIn(given.get("agents")) ?? [],
      budget: budgetIn(given, "all "),
      each: budgetIn(given, "each "),
    };
    await (group ? calls.changeGroup(group.id, body) : calls.addGroup(body));
    onClose();
    await onSaved();
  };
  return (
    <FormDialog title={group ? words.editGroup(group.name) : words.addGroup} onSave={save} onClose={onClose}>
      <label>
        {t().name}
        <input type="text" name="name" required maxLength={64} dir="auto" defaultValue={group?.name} />
      </label>
      <label>
        {words.modelsBlankAll}
        <input
          type="text"
          name="models"
          dir="ltr"
          spellcheck={false}
          placeholder={words.modelPatterns}
          defaultValue={group?.models?.join(", ")}
        />
      </label>
      <label>
        {words.agentsGranted}
        <input
          type="text"
          name="agents"
          dir="ltr"
          spellcheck={false}
          placeholder={words.agentPatterns}
          defaultValue={group?.agents.join(", ")}
        />
      </label>
      <BudgetFields title={words.limitsOfEach} prefix="each " budget={group?.each} />
      <BudgetFields title={words.limitsOfAll} prefix="all " budget={group?.budget} />
    </FormDialog>
  );
}
