/** The tools of an MCP server, as it describes them, each with a call to try it. */
import { useState } from "preact/hooks";
import { useAttempt } from "../ui/attempt";
import { Dialog } from "../ui/dialog";
import { objectFrom } from "../ui/json";
import { Shown, useLoaded } from "../ui/loaded";
import { Problem } from "../ui/problem";
import { w } from "../words/agents";
import { agentCalls, type Called, type McpServer, type OfferedTool } from "./calls";

export function ToolsDialog({ server, onClose }: { server: McpServer; onClose: () => void }) {
  const found = useLoaded(() => agentCalls.connect(server.name));
  return (
    <Dialog title={w().toolsOf(server.name)} onClose={onClose}>
      <Shown of={found}>
        {({ ok, why, tools }) => (
          <>
            <p class={ok ? "note" : "problem"} role="status">
              {ok ? w().toolsFound(tools.length) : why}
            </p>
            <ul class="offered">
              {tools.map((tool) => (
                <li key={tool.name}>
                  <Tool server={server.name} tool={tool} />
                </li>
              ))}
            </ul>
          </>
        )}
      </Shown>
    </Dialog>
  );
}

function Tool({ server, tool }: { server: string; tool: OfferedTool }) {
  const { name, description, parameters, allowed } = tool;
  return (
    <details>
      <summary>
        <strong dir="ltr">{name}</strong> {!allowed && <span class="badge">{w().notAllowed}</span>}
        <span class="note excerpt" dir="auto">
          {description}
        </span>
      </summary>
      <pre class="schema" dir="ltr" tabIndex={0} role="region" aria-label={w().schemaOf(name)}>
        {JSON.stringify(parameters, null, 2)}
      </pre>
      <Trial server={server} tool={name} />
    </details>
  );
}

function Trial({ server, tool }: { server: string; tool: string }) {
  const trying = useAttempt();
  const [called, setCalled] = useState<Called | null>(null);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const given = String(new FormData(event.currentTarget as HTMLFormElement).get("arguments"));
    trying.attempt(async () => {
      setCalled(null);
      setCalled(await agentCalls.callTool(server, tool, objectFrom(given, w().arguments)));
    });
  };
  return (
    <form onSubmit={submit}>
      <label>
        {w().arguments}
        <textarea class="mono" name="arguments" dir="ltr" rows={2} spellcheck={false} placeholder="{}" />
      </label>
      <Problem of={trying} />
      <button type="submit" class="small" disabled={trying.isBusy}>
        {w().callTool(tool)}
      </button>
      {trying.isBusy && <output class="note">{w().calling}</output>}
      {called && (
        <div role="status">
          <p class={called.is_error ? "problem" : "note"}>
            {called.is_error ? w().failedAfter(called.seconds) : w().tookSeconds(called.seconds)}
          </p>
          <pre class="schema" dir="auto">
            {called.output}
          </pre>
        </div>
      )}
    </form>
  );
}
