/** The accounts of a person at MCP servers: connected at the server that grants the access, and disconnected. */
import { useEffect, useState } from "preact/hooks";
import { complain, toast } from "../state/toasts";
import { w } from "../words/agents";
import { moment } from "../words/count";
import { agentCalls, type McpAccount } from "./calls";

/** The part of the settings that shows them. It finishes what was begun, too: people come back to the settings. */
export function Accounts() {
  const [accounts, setAccounts] = useState<McpAccount[]>([]);
  const load = () => agentCalls.accounts().then(({ accounts: found }) => setAccounts(found), complain);
  useEffect(() => {
    finish().then(load);
  }, []);
  if (!accounts.length) return null;
  return (
    <section aria-labelledby="mcp-accounts">
      <h2 id="mcp-accounts">{w().accounts}</h2>
      <p class="note">{w().accountsNote}</p>
      <ul class="cards">
        {accounts.map((account) => (
          <li key={account.server} data-account={account.server}>
            <strong dir="auto">{account.server}</strong>
            <AccountOf account={account} onChange={load} />
          </li>
        ))}
      </ul>
    </section>
  );
}

export function AccountOf({ account, onChange }: { account: McpAccount; onChange: () => Promise<unknown> }) {
  const { server, connected_at } = account;
  const connect = () =>
    agentCalls.beginAccount(server).then(({ url }) => {
      location.href = url;
    }, complain);
  const disconnect = () => agentCalls.disconnect(server).then(onChange, complain);
  return connected_at ? (
    <span class="ends account">
      <span class="note">{w().connectedAt(moment(connected_at, "short"))}</span>
      <button type="button" class="small" aria-label={w().disconnectAt(server)} onClick={disconnect}>
        {w().disconnect}
      </button>
    </span>
  ) : (
    <button type="button" class="small" aria-label={w().connectAt(server)} onClick={connect}>
      {w().connect}
    </button>
  );
}

/** Hand over what the browser has brought back. The address is cleared first: it has a code. */
async function finish(): Promise<void> {
  const given = new URLSearchParams(location.search);
  if (!given.has("state")) return;
  history.replaceState(history.state, "", location.pathname);
  const names = ["state", "code", "iss", "error"].filter((name) => given.has(name));
  const body = Object.fromEntries(names.map((name) => [name, given.get(name) ?? ""]));
  await agentCalls.finishAccount(body).then(({ server }) => toast(w().accountConnected(server)), complain);
}
