/** The list of MCP servers: where each is, whether it is connected, and what can be done with it. */
import { Pencil, Plus, Trash2, Wrench } from "lucide";
import { useState } from "preact/hooks";
import { Act } from "../ui/act";
import { Confirm } from "../ui/confirm";
import { Icon } from "../ui/icon";
import { type Loaded, Shown } from "../ui/loaded";
import { t } from "../words";
import { w } from "../words/agents";
import { AccountOf } from "./accounts";
import { agentCalls, type McpServer } from "./calls";
import { ServerForm } from "./server-form";
import { ToolsDialog } from "./tools-dialog";

type Open = { is: "new" } | { is: "edit" | "remove" | "tools"; server: McpServer };

interface ServersProps {
  of: Loaded<{ servers: McpServer[] }>;
  onChange: () => Promise<unknown>;
}

export function Servers({ of, onChange }: ServersProps) {
  const [open, setOpen] = useState<Open | null>(null);
  const close = () => setOpen(null);
  return (
    <section aria-labelledby="mcp-servers">
      <h2 id="mcp-servers">{w().servers}</h2>
      <p class="note">{w().serversNote}</p>
      <Shown of={of}>
        {({ servers }) =>
          servers.length ? (
            <ul class="cards">
              {servers.map((server) => (
                <Line key={server.name} server={server} onOpen={setOpen} onChange={onChange} />
              ))}
            </ul>
          ) : (
            <p class="note empty-list">{w().noServers}</p>
          )
        }
      </Shown>
      <button type="button" onClick={() => setOpen({ is: "new" })}>
        <Icon node={Plus} size={16} /> {w().newServer}
      </button>
      {open?.is === "new" && <ServerForm server={null} onSaved={onChange} onClose={close} />}
      {open?.is === "edit" && <ServerForm server={open.server} onSaved={onChange} onClose={close} />}
      {open?.is === "tools" && (
        <ToolsDialog
          server={open.server}
          onClose={() => {
            close();
            onChange();
          }}
        />
      )}
      {open?.is === "remove" && (
        <Confirm
          title={w().removeServer(open.server.name)}
          action={t().remove}
          onConfirm={async () => {
            await agentCalls.removeServer(open.server.name);
            await onChange();
          }}
          onClose={close}
        >
          <p>{w().removeServerWhy}</p>
        </Confirm>
      )}
    </section>
  );
}

interface LineProps {
  server: McpServer;
  onOpen: (open: Open) => void;
  onChange: () => Promise<unknown>;
}

function Line({ server, onOpen, onChange }: LineProps) {
  const { name, url, command, args, state, why, agents, editable } = server;
  return (
    <li data-server={name}>
      <div>
        <strong dir="auto">{name}</strong>
        <span class={`badge ${{ connected: "fine", failed: "warning", idle: "" }[state]}`}>{w().states[state]}</span>
        <p class="note excerpt" dir="ltr">
          {url || [command, ...args].join(" ")}
        </p>
        {agents.length > 0 && <p class="note">{w().usedBy(agents.join(", "))}</p>}
        {why && <p class="problem">{why}</p>}
        {server.auth === "oauth" && (
          <AccountOf
            account={{ server: name, shared: server.shared, connected_at: server.connected_at }}
            onChange={onChange}
          />
        )}
      </div>
      <span class="ends">
        {!editable && (
          <span class="badge" title={w().fixedWhy}>
            {w().fixed}
          </span>
        )}
        <Act
          icon={Wrench}
          label={w().toolsOf(name)}
          title={w().tools}
          onClick={() => onOpen({ is: "tools", server })}
        />
        {editable && (
          <>
            <Act
              icon={Pencil}
              label={w().editServer(name)}
              title={t().edit}
              onClick={() => onOpen({ is: "edit", server })}
            />
            <Act
              icon={Trash2}
              label={w().removeServer(name)}
              title={t().remove}
              onClick={() => onOpen({ is: "remove", server })}
            />
          </>
        )}
      </span>
    </li>
  );
}
