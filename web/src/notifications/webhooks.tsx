/** Addresses of the person's own programs that are called at each event of their runs. */
import { useState } from "preact/hooks";
import { Secret } from "../people/secret";
import { complain } from "../state/toasts";
import { useAttempt } from "../ui/attempt";
import { Problem } from "../ui/problem";
import { n } from "../words/notifications";
import { calls, type Told } from "./calls";

interface WebhooksProps {
  webhooks: Told["webhooks"];
  onChange: () => Promise<void>;
}

export function Webhooks({ webhooks, onChange }: WebhooksProps) {
  const [secret, setSecret] = useState("");
  const adding = useAttempt();
  const add = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const url = String(new FormData(form).get("url"));
    const isAdded = await adding.attempt(async () => setSecret((await calls.addWebhook(url)).secret));
    if (isAdded) form.reset();
    await onChange();
  };
  return (
    <details class="webhooks">
      <summary>{n().webhooks}</summary>
      <p class="note">{n().webhooksNote}</p>
      <ul class="cards">
        {webhooks.map(({ id, url }) => (
          <li key={id}>
            <bdi dir="ltr">{url}</bdi>
            <button
              type="button"
              class="small"
              aria-label={n().removeWebhook(url)}
              onClick={() => calls.removeWebhook(id).then(onChange, complain)}
            >
              {n().remove}
            </button>
          </li>
        ))}
      </ul>
      <form onSubmit={add}>
        <label>
          {n().webhookAddress}
          <input type="url" name="url" dir="ltr" required />
        </label>
        {adding.problem && <Problem of={adding} />}
        <button type="submit" disabled={adding.isBusy}>
          {n().addWebhook}
        </button>
      </form>
      {secret && (
        <Secret
          title={n().webhookMade}
          note={n().webhookSecretNote}
          label={n().webhookSecret}
          secret={secret}
          onClose={() => setSecret("")}
        />
      )}
    </details>
  );
}
