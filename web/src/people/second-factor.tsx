/** A person's second factor: turned on with an app, shown, and turned off. */

import { useState } from "preact/hooks";
import { useAttempt } from "../ui/attempt";
import { Confirm } from "../ui/confirm";
import { CopyButton } from "../ui/copy";
import { Shown, useLoaded } from "../ui/loaded";
import { PasswordField } from "../ui/password";
import { Problem } from "../ui/problem";
import { a } from "../words/people";
import { type Account, calls, type ProposedFactor } from "./calls";
import { CodeField } from "./code-field";
import { QrCode } from "./qr-code";

/** In the account page. */
export function SecondFactor({ account }: { account: Account }) {
  const factor = useLoaded(calls.factor);
  const words = a();
  return (
    <section aria-labelledby="second-factor">
      <h2 id="second-factor">{words.secondFactor}</h2>
      <p class="note">{words.secondFactorNote}</p>
      <Shown of={factor}>
        {({ app, recovery_codes: left }) =>
          app ? (
            <TurnedOn left={left} onChanged={factor.load} />
          ) : (
            <details class="fold">
              <summary>{words.turnFactorOn}</summary>
              <SetUpFactor account={account} onDone={factor.load} />
            </details>
          )
        }
      </Shown>
    </section>
  );
}

function TurnedOn({ left, onChanged }: { left: number; onChanged: () => Promise<void> }) {
  const [open, setOpen] = useState<"off" | "renew" | null>(null);
  const [codes, setCodes] = useState<string[] | null>(null);
  const words = a();
  const codeIn = (form: HTMLFormElement) => String(new FormData(form).get("code"));
  return (
    <>
      <p>
        <span class="badge fine">{words.factorIsOn}</span> {words.codesLeft(left)}
      </p>
      {codes && <Codes codes={codes} onDone={() => setCodes(null)} />}
      <div class="line">
        <button type="button" onClick={() => setOpen("renew")}>
          {words.renewCodes}
        </button>
        <button type="button" class="danger" onClick={() => setOpen("off")}>
          {words.turnFactorOff}
        </button>
      </div>
      {open === "off" && (
        <Confirm
          title={words.turnFactorOff}
          action={words.turnFactorOff}
          onConfirm={async (form) => {
            await calls.removeFactor(codeIn(form));
            await onChanged();
          }}
          onClose={() => setOpen(null)}
        >
          <CodeField />
        </Confirm>
      )}
      {open === "renew" && (
        <Confirm
          title={words.renewCodes}
          action={words.renewCodes}
          isBad={false}
          onConfirm={async (form) => {
            setCodes((await calls.renewCodes(codeIn(form))).recovery_codes);
            await onChanged();
          }}
          onClose={() => setOpen(null)}
        >
          <p>{words.renewCodesWhy}</p>
          <CodeField />
        </Confirm>
      )}
    </>
  );
}

type Step = { is: "password" } | { is: "app"; proposed: ProposedFactor } | { is: "codes"; codes: string[] };

/** Three steps: the password, the app and its first code, the recovery codes. */
export function SetUpFactor({ account, onDone }: { account: Account; onDone: () => void }) {
  const [step, setStep] = useState<Step>({ is: "password" });
  const trying = useAttempt();
  const words = a();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    trying.attempt(async () => {
      if (step.is === "password") {
        setStep({ is: "app", proposed: await calls.proposeFactor(String(given.get("current") ?? "")) });
      } else if (step.is === "app") {
        const { recovery_codes: codes } = await calls.addFactor(step.proposed.sealed, String(given.get("code")));
        setStep({ is: "codes", codes });
      }
    });
  };
  if (step.is === "codes") return <Codes codes={step.codes} onDone={onDone} />;
  return (
    <form class="plain-form narrow-form" onSubmit={submit}>
      {step.is === "password" ? (
        <>
          <input type="text" name="username" autocomplete="username" value={account.name} readonly hidden />
          {account.has_password && <PasswordField label={words.currentPassword} name="current" />}
        </>
      ) : (
        <AppToScan proposed={step.proposed} />
      )}
      <Problem of={trying} />
      <button type="submit" class="primary" disabled={trying.isBusy}>
        {step.is === "password" ? words.goOn : words.turnFactorOn}
      </button>
    </form>
  );
}

function AppToScan({ proposed }: { proposed: ProposedFactor }) {
  const words = a();
  return (
    <>
      <p>{words.scanCode}</p>
      <QrCode rows={proposed.qr} label={words.qrCode} />
      <p>
        <a href={proposed.link}>{words.openApp}</a>
      </p>
      <label>
        {words.typeSecret}
        <span class="secret-line">
          <input type="text" class="mono" dir="ltr" readonly value={proposed.secret} />
          <CopyButton text={proposed.secret} label={words.copy} />
        </span>
      </label>
      <CodeField isOfApp />
    </>
  );
}

/** They are shown once. */
function Codes({ codes, onDone }: { codes: string[]; onDone: () => void }) {
  const words = a();
  return (
    <div class="secret" role="group" aria-label={words.recoveryCodes}>
      <p>{words.recoveryCodesNote}</p>
      <ul class="mono recovery-codes" dir="ltr">
        {codes.map((code) => (
          <li key={code}>{code}</li>
        ))}
      </ul>
      <div class="line">
        <CopyButton text={codes.join("\n")} label={words.copy} />
        <button type="button" class="primary" onClick={onDone}>
          {words.iHaveIt}
        </button>
      </div>
    </div>
  );
}
