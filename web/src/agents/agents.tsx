/** The list of agents: what each is, and what can be done with it. */
import { MessageSquare, Pencil, Plus, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { navigate } from "../router";
import { chooseForNew } from "../state/presets";
import { Act } from "../ui/act";
import { Confirm } from "../ui/confirm";
import { Icon } from "../ui/icon";
import { type Loaded, Shown } from "../ui/loaded";
import { t } from "../words";
import { w } from "../words/agents";
import { AgentForm } from "./agent-form";
import { type Agent, type Agents as AgentsFound, agentCalls } from "./calls";

type Open = { is: "new" } | { is: "edit" | "remove"; agent: Agent };

interface AgentsProps {
  of: Loaded<AgentsFound>;
  onChange: () => Promise<unknown>;
}

export function Agents({ of, onChange }: AgentsProps) {
  const [open, setOpen] = useState<Open | null>(null);
  const close = () => setOpen(null);
  const tools = of.state.is === "ready" ? of.state.value.tools : [];
  return (
    <section aria-labelledby="agents">
      <h2 id="agents">{w().agents}</h2>
      <p class="note">{w().agentsNote}</p>
      <Shown of={of}>
        {({ agents }) =>
          agents.length ? (
            <ul class="cards">
              {agents.map((agent) => (
                <Line key={agent.name} agent={agent} onOpen={setOpen} />
              ))}
            </ul>
          ) : (
            <p class="note empty-list">{w().noAgents}</p>
          )
        }
      </Shown>
      <button type="button" onClick={() => setOpen({ is: "new" })}>
        <Icon node={Plus} size={16} /> {w().newAgent}
      </button>
      {open?.is === "new" && <AgentForm agent={null} tools={tools} onSaved={onChange} onClose={close} />}
      {open?.is === "edit" && <AgentForm agent={open.agent} tools={tools} onSaved={onChange} onClose={close} />}
      {open?.is === "remove" && (
        <Confirm
          title={w().removeAgent(open.agent.name)}
          action={t().remove}
          onConfirm={async () => {
            await agentCalls.remove(open.agent.name);
            await onChange();
          }}
          onClose={close}
        >
          <p>{w().removeAgentWhy}</p>
        </Confirm>
      )}
    </section>
  );
}

function Line({ agent, onOpen }: { agent: Agent; onOpen: (open: Open) => void }) {
  const { name, model, tools, editable, problem } = agent;
  const chat = () => {
    chooseForNew({ model: `agent/${name}` });
    navigate("/");
  };
  return (
    <li data-agent={name}>
      <div>
        <strong dir="auto">{name}</strong>
        {problem && <span class="badge warning">{w().unusable}</span>}
        <p class="note excerpt" dir="auto">
          {[model, tools.join(", ") || w().noTools].join(" · ")}
        </p>
        {problem && <p class="problem">{problem}</p>}
      </div>
      <span class="ends">
        {!editable && (
          <span class="badge" title={w().fixedWhy}>
            {w().fixed}
          </span>
        )}
        <Act icon={MessageSquare} label={w().chatWith(name)} title={w().chat} isDisabled={!!problem} onClick={chat} />
        {editable && (
          <>
            <Act
              icon={Pencil}
              label={w().editAgent(name)}
              title={t().edit}
              onClick={() => onOpen({ is: "edit", agent })}
            />
            <Act
              icon={Trash2}
              label={w().removeAgent(name)}
              title={t().remove}
              onClick={() => onOpen({ is: "remove", agent })}
            />
          </>
        )}
      </span>
    </li>
  );
}
