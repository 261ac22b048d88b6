/** Agents and MCP servers: listed, made, tried, changed and removed. */
import { Agents } from "../agents/agents";
import { agentCalls } from "../agents/calls";
import { Servers } from "../agents/servers";
import { loadModels } from "../state/models";
import "../styles/agents.css";
import "../styles/settings.css";
import "../styles/views.css";
import { useLoaded } from "../ui/loaded";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { w } from "../words/agents";

export default function AgentsView() {
  const agents = useLoaded(agentCalls.agents);
  const servers = useLoaded(agentCalls.servers);
  usePageTitle(w().title);
  const load = async () => {
    await Promise.all([agents.load(), servers.load(), loadModels()]);
  };
  return (
    <>
      <ViewHeader title={w().title} />
      <div class="page settings agents">
        <Agents of={agents} onChange={load} />
        <Servers of={servers} onChange={load} />
      </div>
    </>
  );
}
