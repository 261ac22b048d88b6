/** The calls of agents and MCP servers, as docs/protocol/41-agents-and-mcp-servers.md gives them. */
import { call } from "../api";

export type Approval = "allow" | "ask" | "deny";
type Source = "file" | "ui";

export interface AgentChange {
  name: string;
  model: string;
  system: string;
  tools: string[];
  users: string[] | null;
  approvals: Record<string, Approval>;
  replay: Record<string, string>;
  max_steps: number;
  max_seconds: number;
  max_tokens: number;
  max_cost: number;
  approval_timeout: number;
  params: Record<string, unknown>;
  on_restart: "settle" | "continue";
}

export interface Agent extends AgentChange {
  source: Source;
  editable: boolean;
  problem: string | null;
}

export interface Agents {
  agents: Agent[];
  /** The tools that an agent can be given. */
  tools: string[];
}

export interface AgentTool {
  name: string;
  description: string;
  approval: Approval;
}

interface Tried<T> {
  ok: boolean;
  why: string | null;
  tools: T[];
}

interface Described {
  name: string;
  url: string;
  command: string;
  args: string[];
  folder: string;
  tools: string[] | null;
  approval: Approval;
  timeout: number;
  shared: boolean;
  /** "oauth": people connect accounts of theirs. */
  auth: "" | "oauth";
  oauth_client: string;
  scopes: string[];
}

/** An account of the caller at an MCP server, or one that can be connected. */
export interface McpAccount {
  server: string;
  shared: boolean;
  connected_at: string | null;
}

/** A secret that is null stays as it is stored. */
export type Secrets = Record<string, string | null>;

export type ServerChange = Described & { headers: Secrets; env: Secrets; oauth_secret: string | null };

export interface McpServer extends Described {
  /** The names of what is sent and set, without the values. */
  headers: string[];
  env: string[];
  oauth_secret_set: boolean;
  source: Source;
  editable: boolean;
  state: "connected" | "failed" | "idle";
  why: string | null;
  connected_at: string | null;
  agents: string[];
}

export interface OfferedTool {
  name: string;
  description: string;
  parameters: Record<string, unknown>;
  allowed: boolean;
}

export type Found = Tried<OfferedTool>;

export interface Called {
  output: string;
  is_error: boolean;
  seconds: number;
}

/** A tool that may be called without asking: in one chat, or always. */
export interface Grant {
  id: string;
  agent: string;
  tool: string;
  session_id: string | null;
  /** Only calls that begin so; empty for all. */
  beginning: string;
  created_at: string;
}

const agent = (name: string) => `/api/agents/${encodeURIComponent(name)}`;
const server = (name: string) => `/api/mcp/${encodeURIComponent(name)}`;
const account = (name: string) => `/api/mcp-accounts/${encodeURIComponent(name)}`;

export const agentCalls = {
  agents: () => call<Agents>("GET", "/api/agents"),
  add: (body: AgentChange) => call<Agent>("POST", "/api/agents", { body }),
  change: (name: string, body: AgentChange) => call<Agent>("PUT", agent(name), { body }),
  remove: (name: string) => call<void>("DELETE", agent(name)),
  test: (body: AgentChange) => call<Tried<AgentTool>>("POST", "/api/agents/test", { body }),
  servers: () => call<{ servers: McpServer[] }>("GET", "/api/mcp"),
  addServer: (body: ServerChange) => call<McpServer>("POST", "/api/mcp", { body }),
  changeServer: (name: string, body: ServerChange) => call<McpServer>("PUT", server(name), { body }),
  removeServer: (name: string) => call<void>("DELETE", server(name)),
  testServer: (body: ServerChange) => call<Found>("POST", "/api/mcp/test", { body }),
  connect: (name: string) => call<Found>("POST", `${server(name)}/connect`),
  accounts: () => call<{ accounts: McpAccount[] }>("GET", "/api/mcp-accounts"),
  beginAccount: (name: string) => call<{ url: string }>("POST", account(name)),
  finishAccount: (body: Record<string, string>) => call<McpAccount>("POST", "/api/mcp-accounts", { body }),
  disconnect: (name: string) => call<void>("DELETE", account(name)),
  callTool: (name: string, tool: string, args: Record<string, unknown>) =>
    call<Called>("POST", `${server(name)}/call`, { body: { tool, arguments: args } }),
  grants: () => call<{ grants: Grant[] }>("GET", "/api/grants"),
  revoke: (grant: string) => call<void>("DELETE", `/api/grants/${grant}`),
};
