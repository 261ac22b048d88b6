/** Makes an agent, or changes one: its model, tools and limits, and who may use it. */
import { useId, useState } from "preact/hooks";
import { isAdmin } from "../state/caller";
import { models } from "../state/models";
import { presets } from "../state/presets";
import { useAttempt } from "../ui/attempt";
import { Dialog } from "../ui/dialog";
import { objectFrom, objectText } from "../ui/json";
import { useLeave } from "../ui/leave";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { w } from "../words/agents";
import { type Agent, type AgentChange, type AgentTool, type Approval, agentCalls } from "./calls";
import { UserFields } from "./user-fields";

const BLANK: AgentChange = {
  name: "",
  model: "",
  system: "",
  tools: [],
  users: null,
  approvals: {},
  replay: {},
  max_steps: 25,
  max_seconds: 3600,
  max_tokens: 0,
  max_cost: 0,
  approval_timeout: 86_400,
  params: {},
  on_restart: "settle",
};

interface AgentFormProps {
  agent: Agent | null;
  tools: string[];
  onSaved: () => Promise<unknown>;
  onClose: () => void;
}

export function AgentForm({ agent, tools, onSaved, onClose }: AgentFormProps) {
  const trying = useAttempt();
  const { onInput, leave, question } = useLeave(onClose);
  const [draft, setDraft] = useState<AgentChange>(() => changeOf(agent ?? BLANK));
  const [params, setParams] = useState(() => objectText(draft.params));
  const [found, setFound] = useState<AgentTool[] | null>(null);
  const set = (change: Partial<AgentChange>) => setDraft((before) => ({ ...before, ...change }));
  const wanted = () => ({ ...draft, params: objectFrom(params, w().params) });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    trying.attempt(async () => {
      await (agent ? agentCalls.change(agent.name, wanted()) : agentCalls.add(wanted()));
      await onSaved();
      onClose();
    });
  };
  const test = (form: HTMLFormElement | null) => {
    if (!form?.reportValidity()) return;
    trying.attempt(async () => {
      setFound(null);
      const { ok, why, tools: listed } = await agentCalls.test(wanted());
      if (!ok) throw new Error(why ?? w().failed);
      setFound(listed);
    });
  };
  return (
    <Dialog title={agent ? w().editAgent(agent.name) : w().newAgent} onClose={leave}>
      <form onSubmit={submit} onInput={onInput} autocomplete="off">
        <Basics draft={draft} isNew={!agent} onChange={set} />
        <ToolChoice offered={tools} draft={draft} onChange={set} />
        {isAdmin.value && <UserFields users={draft.users} onChange={(users) => set({ users })} />}
        <details class="fold">
          <summary>{t().moreOptions}</summary>
          <Limits draft={draft} onChange={set} />
          <label>
            {w().params}
            <textarea
              class="mono"
              name="params"
              dir="ltr"
              rows={2}
              spellcheck={false}
              placeholder='{"temperature": 0}'
              value={params}
              onInput={(event) => setParams(event.currentTarget.value)}
            />
          </label>
        </details>
        {found && <Approvals found={found} draft={draft} onChange={set} />}
        <Problem of={trying} />
        <p class="found" role="status">
          {found && w().toolsFound(found.length)}
        </p>
        <footer>
          {question}
          <button type="button" disabled={trying.isBusy} onClick={(event) => test(event.currentTarget.form)}>
            {w().check}
          </button>
          <button type="submit" class="primary" disabled={trying.isBusy}>
            {t().save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** What is sent of an agent. */
function changeOf(agent: AgentChange): AgentChange {
  const names = Object.keys(BLANK) as (keyof AgentChange)[];
  return Object.fromEntries(names.map((name) => [name, agent[name]])) as unknown as AgentChange;
}

interface PartProps {
  draft: AgentChange;
  onChange: (change: Partial<AgentChange>) => void;
}

function Basics({ draft, isNew, onChange }: PartProps & { isNew: boolean }) {
  const listed = useId();
  const take = (id: string) => {
    const preset = presets.value.find((each) => each.id === id);
    if (preset) onChange({ model: preset.model ?? draft.model, system: preset.system ?? "" });
  };
  return (
    <>
      <div class="fields">
        <label>
          {t().name}
          <input
            type="text"
            name="name"
            dir="ltr"
            required
            maxLength={64}
            pattern="[A-Za-z0-9][A-Za-z0-9._\-]*"
            readOnly={!isNew}
            value={draft.name}
            onInput={(event) => onChange({ name: event.currentTarget.value })}
          />
        </label>
        <label>
          {t().model}
          <input
            type="text"
            name="model"
            dir="ltr"
            required
            list={listed}
            spellcheck={false}
            value={draft.model}
            onInput={(event) => onChange({ model: event.currentTarget.value })}
          />
        </label>
      </div>
      <datalist id={listed}>
        {models.value.models
          .filter(({ id }) => !id.startsWith("agent/"))
          .map(({ id }) => (
            <option key={id} value={id} />
          ))}
      </datalist>
      {presets.value.length > 0 && (
        <label>
          {w().fromPreset}
          <select onChange={(event) => take(event.currentTarget.value)}>
            <option value="" />
            {presets.value.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        </label>
      )}
      <label>
        {t().systemPrompt}
        <textarea
          name="system"
          dir="auto"
          rows={4}
          value={draft.system}
          onInput={(event) => onChange({ system: event.currentTarget.value })}
        />
      </label>
    </>
  );
}

function ToolChoice({ offered, draft, onChange }: PartProps & { offered: string[] }) {
  const gone = draft.tools.filter((tool) => !offered.includes(tool));
  const toggle = (tool: string) =>
    onChange({
      tools: draft.tools.includes(tool) ? draft.tools.filter((each) => each !== tool) : [...draft.tools, tool],
    });
  return (
    <fieldset class="tool-choice">
      <legend>{w().tools}</legend>
      {[...offered, ...gone].map((tool) => (
        <label class="check" key={tool}>
          <input type="checkbox" checked={draft.tools.includes(tool)} onChange={() => toggle(tool)} />
          <span dir="ltr">{tool}</span> <span class="note">{told(tool)}</span>
        </label>
      ))}
    </fieldset>
  );
}

function told(tool: string): string {
  if (tool === "files") return w().filesTool;
  if (tool === "shell") return w().shellTool;
  if (tool === "ask_user") return w().askTool;
  return tool.startsWith("mcp:") ? w().serverTool : w().pythonTool;
}

type LimitName = "max_steps" | "max_seconds" | "max_tokens" | "max_cost" | "approval_timeout";
const LIMITS: [LimitName, string, string][] = [
  ["max_steps", "1", "1"],
  ["max_seconds", "0", "any"],
  ["max_tokens", "0", "1"],
  ["max_cost", "0", "any"],
  ["approval_timeout", "0", "any"],
];

function Limits({ draft, onChange }: PartProps) {
  return (
    <>
      <div class="fields">
        {LIMITS.map(([name, min, step]) => (
          <label key={name}>
            {w().limits[name]}
            <input
              type="number"
              name={name}
              min={min}
              step={step}
              required
              value={draft[name]}
              onInput={(event) => onChange({ [name]: Number(event.currentTarget.value) })}
            />
          </label>
        ))}
      </div>
      <label class="check">
        <input
          type="checkbox"
          checked={draft.on_restart === "continue"}
          onChange={(event) => onChange({ on_restart: event.currentTarget.checked ? "continue" : "settle" })}
        />
        {w().goesOn}
      </label>
    </>
  );
}

const APPROVALS: Approval[] = ["allow", "ask", "deny"];

/** Its tools as they were found, and whether each may be called without asking. */
function Approvals({ found, draft, onChange }: PartProps & { found: AgentTool[] }) {
  return (
    <ul class="approvals">
      {found.map(({ name, description, approval }) => (
        <li key={name}>
          <label>
            <span>
              <strong dir="ltr">{name}</strong> <span class="note excerpt">{description}</span>
            </span>
            <select
              value={draft.approvals[name] ?? approval}
              onChange={(event) =>
                onChange({ approvals: { ...draft.approvals, [name]: event.currentTarget.value as Approval } })
              }
            >
              {APPROVALS.map((each) => (
                <option key={each} value={each} selected={each === (draft.approvals[name] ?? approval)}>
                  {w().approvals[each]}
                </option>
              ))}
            </select>
          </label>
        </li>
      ))}
    </ul>
  );
}
