/** Keys: listed, made, rotated and revoked. A key itself is shown once, when it is made. */

import { Gauge, Plus, RefreshCw, Trash2 } from "lucide";
import { useState } from "preact/hooks";
import { Confirm } from "../ui/confirm";
import { Icon } from "../ui/icon";
import { Shown, useLoaded } from "../ui/loaded";
import { t } from "../words";
import { moment } from "../words/count";
import { a } from "../words/people";
import { budgetIn, LimitFields, limitsIn } from "./budget-fields";
import { type ApiKey, calls, type KeysPath, type MadeKey, type Scope } from "./calls";
import { KeyForm } from "./key-form";
import { Secret } from "./secret";

type Open = { is: "form" } | { is: "made"; key: MadeKey } | { is: "limits" | "rotate" | "revoke"; key: ApiKey };

/** `scopes` are those that a new key can have. */
export function Keys({ path, scopes }: { path: KeysPath; scopes: Scope[] }) {
  const keys = useLoaded(() => calls.keys(path), path);
  const [open, setOpen] = useState<Open | null>(null);
  const words = a();
  const close = (closed: Open) => setOpen((now) => (now === closed ? null : now));
  const made = async (key: MadeKey) => {
    setOpen({ is: "made", key });
    await keys.load();
  };
  return (
    <>
      <Shown of={keys}>
        {({ keys: listed }) =>
          listed.length ? (
            <ul class="cards">
              {listed.map((key) => (
                <Line key={key.id} apiKey={key} isOfAll={path === "/api/admin/keys"} onOpen={setOpen} />
              ))}
            </ul>
          ) : (
            <p class="note empty-list">{words.noKeys}</p>
          )
        }
      </Shown>
      <button type="button" onClick={() => setOpen({ is: "form" })}>
        <Icon node={Plus} size={16} /> {path === "/api/keys" ? words.newKey : words.newServiceKey}
      </button>
      {open?.is === "form" && <KeyForm path={path} scopes={scopes} onMade={made} onClose={() => close(open)} />}
      {open?.is === "made" && (
        <Secret
          title={words.keyMade(open.key.name)}
          note={words.keyShownOnce}
          label={t().apiKey}
          secret={open.key.key}
          onClose={() => close(open)}
        />
      )}
      {open?.is === "limits" && <Limits apiKey={open.key} onSaved={keys.load} onClose={() => close(open)} />}
      {open?.is === "rotate" && <Rotate path={path} apiKey={open.key} onMade={made} onClose={() => close(open)} />}
      {open?.is === "revoke" && (
        <Confirm
          title={words.revokeKey(open.key.name)}
          action={t().revoke}
          onConfirm={async () => {
            await calls.revokeKey(path, open.key.id);
            await keys.load();
          }}
          onClose={() => close(open)}
        >
          <p>{words.revokeKeyWhy}</p>
        </Confirm>
      )}
    </>
  );
}

interface LineProps {
  apiKey: ApiKey;
  isOfAll: boolean;
  onOpen: (open: Open) => void;
}

function Line({ apiKey: key, isOfAll, onOpen }: LineProps) {
  const words = a();
  return (
    <li data-key={key.name}>
      <div>
        <strong dir="auto">{key.name}</strong>
        {key.scopes?.map((scope) => (
          <span key={scope} class="badge">
            {words.scopes[scope]}
          </span>
        ))}
        <p class="note">
          {key.prefix && <code dir="ltr">{key.prefix}…</code>} {described(key, isOfAll)}
        </p>
      </div>
      <span class="ends">
        {isOfAll && (
          <button
            type="button"
            class="quiet icon-button"
            aria-label={words.limitsOf(key.name)}
            title={words.limitsTitle}
            onClick={() => onOpen({ is: "limits", key })}
          >
            <Icon node={Gauge} size={16} />
          </button>
        )}
        {!(isOfAll && key.account) && (
          <button
            type="button"
            class="quiet icon-button"
            aria-label={words.rotateKey(key.name)}
            title={words.rotate}
            onClick={() => onOpen({ is: "rotate", key })}
          >
            <Icon node={RefreshCw} size={16} />
          </button>
        )}
        <button
          type="button"
          class="quiet icon-button"
          aria-label={words.revokeKey(key.name)}
          title={t().revoke}
          onClick={() => onOpen({ is: "revoke", key })}
        >
          <Icon node={Trash2} size={16} />
        </button>
      </span>
    </li>
  );
}

function described(key: ApiKey, isOfAll: boolean): string {
  const words = a();
  const parts = [
    isOfAll && (key.account ? words.keyOfPerson(key.made_by || key.owner) : words.keyOfService),
    key.models && words.modelsLimited(key.models.join(", ")),
    key.agents && words.agentsLimited(key.agents.join(", ")),
    ...limitsIn(key.budget),
    key.last_used_at ? words.lastUsed(moment(key.last_used_at, "short")) : words.neverUsed,
    key.expires_at ? words.expiresAt(moment(key.expires_at, "short")) : words.neverExpires,
  ];
  return parts.filter(Boolean).join(" · ");
}

interface LimitsProps {
  apiKey: ApiKey;
  onSaved: () => Promise<void>;
  onClose: () => void;
}

/** Changes the limits of any key. Only admins do. */
function Limits({ apiKey, onSaved, onClose }: LimitsProps) {
  const words = a();
  const save = async (form: HTMLFormElement) => {
    await calls.limitKey(apiKey.id, budgetIn(new FormData(form), ""));
    await onSaved();
  };
  return (
    <Confirm
      title={words.limitsOf(apiKey.name)}
      action={t().save}
      onConfirm={save}
      onClose={onClose}
      isBad={false}
      isNarrow={false}
    >
      <LimitFields prefix="" budget={apiKey.budget} />
    </Confirm>
  );
}

interface RotateProps {
  path: KeysPath;
  apiKey: ApiKey;
  onMade: (key: MadeKey) => void;
  onClose: () => void;
}

/** Makes another key in a key's place. Both work for a while. */
function Rotate({ path, apiKey, onMade, onClose }: RotateProps) {
  const words = a();
  const rotate = async (form: HTMLFormElement) => {
    const hours = Number(new FormData(form).get("overlap_hours"));
    onMade(await calls.rotateKey(path, apiKey.id, hours));
  };
  return (
    <Confirm
      title={words.rotateKey(apiKey.name)}
      action={words.rotate}
      onConfirm={rotate}
      onClose={onClose}
      isBad={false}
    >
      <p>{words.rotateKeyWhy}</p>
      <label>
        {words.overlapHours}
        <input type="number" name="overlap_hours" min="0" max="2160" step="1" required defaultValue="24" />
      </label>
    </Confirm>
  );
}
