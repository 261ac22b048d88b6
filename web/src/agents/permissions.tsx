/** Tools that agents may use without asking: listed, and revoked. */
import { useEffect, useState } from "preact/hooks";
import { visible } from "../chat/whole-call";
import { complain } from "../state/toasts";
import { t } from "../words";
import { moment } from "../words/count";
import { agentCalls, type Grant } from "./calls";

export function Permissions() {
  const [grants, setGrants] = useState<Grant[] | null>(null);
  const load = () => agentCalls.grants().then(({ grants: found }) => setGrants(found), complain);
  useEffect(() => {
    load();
  }, []);
  const revoke = async ({ id }: Grant) => {
    await agentCalls.revoke(id).catch(complain);
    await load();
  };
  if (!grants) return null;
  return (
    <section aria-labelledby="permissions">
      <h2 id="permissions">{t().toolPermissions}</h2>
      <p class="note">{grants.length ? t().toolPermissionsNote : t().noPermissions}</p>
      <ul class="cards">
        {grants.map((grant) => (
          <li key={grant.id} data-grant={grant.tool}>
            <div>
              <strong>{grant.tool}</strong>
              {grant.beginning && (
                <>
                  {" "}
                  <code>{visible(grant.beginning)} …</code>
                </>
              )}
              <p class="note">
                {grant.agent} ·{" "}
                {grant.session_id ? <a href={`/s/${grant.session_id}`}>{t().inOneChat}</a> : t().inAllChats} ·{" "}
                {moment(grant.created_at, "short")}
              </p>
            </div>
            <button type="button" class="small" aria-label={t().revokeTool(grant.tool)} onClick={() => revoke(grant)}>
              {t().revoke}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
