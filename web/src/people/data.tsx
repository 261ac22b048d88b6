/** All that a person has on the server: exported, imported, deleted. */

import { Download, Trash2, Upload } from "lucide";
import { useState } from "preact/hooks";
import { toast } from "../state/toasts";
import { useAttempt } from "../ui/attempt";
import { Confirm } from "../ui/confirm";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { PasswordField } from "../ui/password";
import { Problem } from "../ui/problem";
import { saveFrom } from "../ui/save";
import { a } from "../words/people";
import { type Account, calls, EXPORT, type Imported } from "./calls";
import { gone } from "./passing";

export function Data({ account }: { account: Account }) {
  const [isDeleting, setDeleting] = useState(false);
  const trying = useAttempt();
  const { isBusy, attempt } = trying;
  const file = useElement<HTMLInputElement>();
  const words = a();
  const take = async (chosen: File | undefined) => {
    if (chosen) await attempt(async () => tell(await calls.importData(chosen)));
    file.current.value = "";
  };
  return (
    <section aria-labelledby="data">
      <h2 id="data">{words.data}</h2>
      <p class="note">{words.dataNote}</p>
      <div class="line">
        <button type="button" onClick={() => saveFrom(EXPORT, "holdfast-account.zip")}>
          <Icon node={Download} size={16} /> {words.exportData}
        </button>
        <button type="button" disabled={isBusy} onClick={() => file.current.click()}>
          <Icon node={Upload} size={16} /> {words.importData}
        </button>
        <input
          ref={file}
          type="file"
          accept=".zip,application/zip"
          hidden
          aria-label={words.importData}
          onChange={(event) => take(event.currentTarget.files?.[0])}
        />
        <button type="button" class="danger" onClick={() => setDeleting(true)}>
          <Icon node={Trash2} size={16} /> {words.deleteAccount}
        </button>
      </div>
      <Problem of={trying} />
      {isDeleting && (
        <Confirm
          title={words.deleteAccount}
          action={words.deleteAll}
          onConfirm={async (form) => {
            await calls.deleteAccount(String(new FormData(form).get("password") ?? ""));
            gone();
          }}
          onClose={() => setDeleting(false)}
        >
          <p>{words.deleteAccountWhy(account.name)}</p>
          {account.has_password && <PasswordField label={words.currentPassword} name="password" />}
        </Confirm>
      )}
    </section>
  );
}

function tell({ sessions, refused, reason }: Imported): void {
  toast(a().imported(sessions));
  if (refused) toast(a().notImported(refused, reason ?? ""), { kind: "bad", lasts: 12_000 });
}
