/** The list of prompts: the person's own, and those that others share. */
import { Plus } from "lucide";
import { useState } from "preact/hooks";
import { isGuest } from "../state/caller";
import type { GroupName } from "../types";
import { Confirm } from "../ui/confirm";
import { FormDialog } from "../ui/form-dialog";
import { Icon } from "../ui/icon";
import { type Loaded, Shown } from "../ui/loaded";
import { t } from "../words";
import { p } from "../words/presets";
import { type Prompt, presetCalls } from "./calls";
import { SharedWith } from "./preset-form";
import { Change, Sharing } from "./presets";

type Open = { is: "new" } | { is: "edit" | "delete"; prompt: Prompt };

interface PromptsProps {
  of: Loaded<{ prompts: Prompt[] }>;
  groups: GroupName[];
  onChange: () => Promise<unknown>;
}

export function Prompts({ of, groups, onChange }: PromptsProps) {
  const [open, setOpen] = useState<Open | null>(null);
  const close = () => setOpen(null);
  return (
    <section aria-labelledby="prompts">
      <h2 id="prompts">{p().prompts}</h2>
      <p class="note">{p().promptsNote}</p>
      <Shown of={of}>
        {({ prompts }) =>
          prompts.length ? (
            <ul class="cards">
              {prompts.map((prompt) => (
                <Line key={prompt.id} prompt={prompt} onOpen={setOpen} />
              ))}
            </ul>
          ) : (
            <p class="note empty-list">{p().noPrompts}</p>
          )
        }
      </Shown>
      {!isGuest.value && (
        <button type="button" onClick={() => setOpen({ is: "new" })}>
          <Icon node={Plus} size={16} /> {p().newPrompt}
        </button>
      )}
      {open?.is === "new" && <PromptForm prompt={null} groups={groups} onSaved={onChange} onClose={close} />}
      {open?.is === "edit" && <PromptForm prompt={open.prompt} groups={groups} onSaved={onChange} onClose={close} />}
      {open?.is === "delete" && (
        <Confirm
          title={p().deletePrompt(open.prompt.name)}
          action={t().delete}
          onConfirm={async () => {
            await presetCalls.deletePrompt(open.prompt.id);
            await onChange();
          }}
          onClose={close}
        >
          <p>{p().deletePromptWhy}</p>
        </Confirm>
      )}
    </section>
  );
}

function Line({ prompt, onOpen }: { prompt: Prompt; onOpen: (open: Open) => void }) {
  const { name, text, variables, own } = prompt;
  return (
    <li data-prompt={name}>
      <div>
        <strong dir="auto">/{name}</strong>
        <Sharing of={prompt} />
        <p class="note excerpt" dir="auto">
          {text}
        </p>
        {variables.length > 0 && <p class="note">{p().asks(variables.join(", "))}</p>}
      </div>
      {own && (
        <span class="ends">
          <Change
            edit={p().editPrompt(name)}
            remove={p().deletePrompt(name)}
            onEdit={() => onOpen({ is: "edit", prompt })}
            onDelete={() => onOpen({ is: "delete", prompt })}
          />
        </span>
      )}
    </li>
  );
}

interface PromptFormProps {
  prompt: Prompt | null;
  groups: GroupName[];
  onSaved: () => void;
  onClose: () => void;
}

function PromptForm({ prompt, groups, onSaved, onClose }: PromptFormProps) {
  const save = async (given: FormData) => {
    const value = (name: string) => String(given.get(name) ?? "");
    const body = { name: value("name").trim(), text: value("text"), group: value("group") };
    await (prompt ? presetCalls.changePrompt(prompt.id, body) : presetCalls.addPrompt(body));
    onSaved();
    onClose();
  };
  return (
    <FormDialog title={prompt ? p().editPrompt(prompt.name) : p().newPrompt} onSave={save} onClose={onClose}>
      <label>
        {p().promptName}
        <input
          type="text"
          name="name"
          dir="auto"
          required
          maxLength={64}
          spellcheck={false}
          defaultValue={prompt?.name}
        />
      </label>
      <label>
        {p().promptText}
        <textarea name="text" dir="auto" rows={8} required aria-describedby="prompt-hint" defaultValue={prompt?.text} />
      </label>
      <p id="prompt-hint">{p().promptHint}</p>
      <SharedWith groups={groups} group={prompt?.group ?? null} />
    </FormDialog>
  );
}
