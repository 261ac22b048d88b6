/** Adds an MCP server, or changes one. Values of headers and variables are written, and never read. */
import { Plus, X } from "lucide";
import { useState } from "preact/hooks";
import { useAttempt } from "../ui/attempt";
import { Dialog } from "../ui/dialog";
import { Icon } from "../ui/icon";
import { useLeave } from "../ui/leave";
import { Problem } from "../ui/problem";
import { t } from "../words";
import { w } from "../words/agents";
import { type Approval, agentCalls, type McpServer, type Secrets, type ServerChange } from "./calls";

/** A header or a variable: its value is null while the stored one stays. */
interface Pair {
  name: string;
  value: string | null;
  isStored: boolean;
}

interface ServerFormProps {
  server: McpServer | null;
  onSaved: () => Promise<unknown>;
  onClose: () => void;
}

const APPROVALS: Approval[] = ["ask", "allow", "deny"];

export function ServerForm({ server, onSaved, onClose }: ServerFormProps) {
  const trying = useAttempt();
  const { onInput, leave, question } = useLeave(onClose);
  const [isCommand, setCommand] = useState(Boolean(server?.command));
  const [pairs, setPairs] = useState<Pair[]>(() => stored(server));
  const [found, setFound] = useState("");
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const wanted = fromForm(event.currentTarget as HTMLFormElement, server, isCommand, pairs);
    trying.attempt(async () => {
      await (server ? agentCalls.changeServer(server.name, wanted) : agentCalls.addServer(wanted));
      await onSaved();
      onClose();
    });
  };
  const test = (form: HTMLFormElement | null) => {
    if (!form?.reportValidity()) return;
    trying.attempt(async () => {
      setFound("");
      const { ok, why, tools } = await agentCalls.testServer(fromForm(form, server, isCommand, pairs));
      if (!ok) throw new Error(why ?? w().failed);
      setFound(w().toolsFound(tools.length));
    });
  };
  const choose = (command: boolean) => {
    setCommand(command);
    setPairs([]);
  };
  return (
    <Dialog title={server ? w().editServer(server.name) : w().newServer} onClose={leave}>
      <form onSubmit={submit} onInput={onInput} autocomplete="off">
        <div class="fields">
          <label>
            {t().name}
            <input
              type="text"
              name="name"
              dir="ltr"
              required
              maxLength={24}
              pattern="[A-Za-z0-9][A-Za-z0-9\-]*"
              readOnly={!!server}
              defaultValue={server?.name}
            />
          </label>
          <label>
            {t().type}
            <select value={String(isCommand)} onChange={(event) => choose(event.currentTarget.value === "true")}>
              <option value="false" selected={!isCommand}>
                {w().byAddress}
              </option>
              <option value="true" selected={isCommand}>
                {w().byCommand}
              </option>
            </select>
          </label>
        </div>
        {isCommand ? <Command server={server} /> : <Address server={server} />}
        <Pairs pairs={pairs} isCommand={isCommand} onChange={setPairs} />
        <More server={server} isCommand={isCommand} />
        <Problem of={trying} />
        <p class="found" role="status">
          {found}
        </p>
        <footer>
          {question}
          <button type="button" disabled={trying.isBusy} onClick={(event) => test(event.currentTarget.form)}>
            {t().testConnection}
          </button>
          <button type="submit" class="primary" disabled={trying.isBusy}>
            {t().save}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

function Address({ server }: { server: McpServer | null }) {
  return (
    <>
      <label>
        {w().address}
        <input type="url" name="url" dir="ltr" required defaultValue={server?.url} />
      </label>
      <label class="check">
        <input type="checkbox" name="oauth" defaultChecked={server?.auth === "oauth"} /> {w().oauth}
      </label>
    </>
  );
}

function Command({ server }: { server: McpServer | null }) {
  return (
    <>
      <p class="note">{w().commandNote}</p>
      <label>
        {w().command}
        <input type="text" name="command" dir="ltr" required spellcheck={false} defaultValue={server?.command} />
      </label>
      <label>
        {w().commandArguments}
        <textarea class="mono" name="args" dir="ltr" rows={3} defaultValue={server?.args.join("\n")} />
      </label>
      <label>
        {w().folder}
        <input type="text" name="folder" dir="ltr" spellcheck={false} defaultValue={server?.folder} />
      </label>
    </>
  );
}

interface PairsProps {
  pairs: Pair[];
  isCommand: boolean;
  onChange: (pairs: Pair[]) => void;
}

function Pairs({ pairs, isCommand, onChange }: PairsProps) {
  const set = (index: number, change: Partial<Pair>) =>
    onChange(pairs.map((each, at) => (at === index ? { ...each, ...change } : each)));
  return (
    <fieldset class="pairs">
      <legend>{isCommand ? w().variables : w().headers}</legend>
      {pairs.map(({ name, value, isStored }, index) => (
        <div class="pair" key={index}>
          <input
            type="text"
            dir="ltr"
            required
            aria-label={t().name}
            spellcheck={false}
            value={name}
            readOnly={isStored}
            onInput={(event) => set(index, { name: event.currentTarget.value })}
          />
          <input
            type="password"
            dir="ltr"
            required={!isStored}
            autocomplete="new-password"
            aria-label={w().valueOf(name)}
            placeholder={isStored ? w().kept : w().value}
            value={value ?? ""}
            onInput={(event) => set(index, { value: event.currentTarget.value || (isStored ? null : "") })}
          />
          <button
            type="button"
            class="quiet icon-button"
            aria-label={w().removePair(name)}
            onClick={() => onChange(pairs.filter((_, at) => at !== index))}
          >
            <Icon node={X} size={16} />
          </button>
        </div>
      ))}
      <button
        type="button"
        class="small"
        onClick={() => onChange([...pairs, { name: "", value: "", isStored: false }])}
      >
        <Icon node={Plus} size={14} /> {isCommand ? w().addVariable : w().addHeader}
      </button>
    </fieldset>
  );
}

function More({ server, isCommand }: { server: McpServer | null; isCommand: boolean }) {
  return (
    <details class="fold">
      <summary>{t().moreOptions}</summary>
      <div class="fields">
        <label>
          {w().mayBeCalled}
          <select name="approval">
            {APPROVALS.map((each) => (
              <option key={each} value={each} selected={each === (server?.approval ?? "ask")}>
                {w().approvals[each]}
              </option>
            ))}
          </select>
        </label>
        <label>
          {w().timeout}
          <input type="number" name="timeout" min="0" step="any" defaultValue={String(server?.timeout ?? 60)} />
        </label>
      </div>
      <label>
        {w().allowedTools}
        <input type="text" name="tools" dir="ltr" spellcheck={false} defaultValue={server?.tools?.join(", ")} />
      </label>
      {!isCommand && (
        <div class="fields">
          <label>
            {w().clientId}
            <input type="text" name="oauth_client" dir="ltr" spellcheck={false} defaultValue={server?.oauth_client} />
          </label>
          <label>
            {w().clientSecret}
            <input
              type="password"
              name="oauth_secret"
              dir="ltr"
              autocomplete="new-password"
              placeholder={server?.oauth_secret_set ? w().kept : ""}
            />
          </label>
          <label>
            {w().scopes}
            <input type="text" name="scopes" dir="ltr" spellcheck={false} defaultValue={server?.scopes.join(" ")} />
          </label>
        </div>
      )}
      <label class="check">
        <input type="checkbox" name="shared" defaultChecked={server?.shared} /> {w().shared}
      </label>
    </details>
  );
}

function stored(server: McpServer | null): Pair[] {
  const names = server ? (server.command ? server.env : server.headers) : [];
  return names.map((name) => ({ name, value: null, isStored: true }));
}

function fromForm(form: HTMLFormElement, server: McpServer | null, isCommand: boolean, pairs: Pair[]): ServerChange {
  const given = new FormData(form);
  const text = (name: string) => String(given.get(name) ?? "").trim();
  const lines = text("args").split("\n").filter(Boolean);
  const secrets: Secrets = Object.fromEntries(pairs.map(({ name, value }) => [name.trim(), value]));
  const isSecretKept = server?.oauth_secret_set && server.oauth_client === text("oauth_client");
  return {
    name: text("name"),
    url: text("url"),
    command: text("command"),
    args: isCommand ? lines : [],
    folder: text("folder"),
    headers: isCommand ? {} : secrets,
    env: isCommand ? secrets : {},
    tools: text("tools") ? text("tools").split(/[\s,]+/) : null,
    approval: text("approval") as Approval,
    timeout: Number(text("timeout") || 0),
    shared: given.has("shared"),
    auth: given.has("oauth") ? "oauth" : "",
    oauth_client: text("oauth_client"),
    oauth_secret: text("oauth_secret") || (isSecretKept ? null : ""),
    scopes: text("scopes").split(/\s+/).filter(Boolean),
  };
}
