/** Passkeys of this browser (WebAuthn), with their options and answers as JSON. */
import { a } from "../words/people";

/** Newer than the types that TypeScript has. */
interface PasskeyJson {
  parseCreationOptionsFromJSON(options: object): PublicKeyCredentialCreationOptions;
  parseRequestOptionsFromJSON(options: object): PublicKeyCredentialRequestOptions;
}
type Maybe = Partial<PasskeyJson> | undefined;

function passkeyJson(): PasskeyJson | null {
  const found = (globalThis as { PublicKeyCredential?: unknown }).PublicKeyCredential as Maybe;
  const isWhole = found?.parseCreationOptionsFromJSON && found.parseRequestOptionsFromJSON;
  return isWhole ? (found as PasskeyJson) : null;
}

/** Browsers have passkeys for pages over HTTPS and of localhost only. */
export function canUsePasskeys(): boolean {
  return passkeyJson() !== null;
}

export async function madePasskey(options: object): Promise<unknown> {
  return answered((json) => navigator.credentials.create({ publicKey: json.parseCreationOptionsFromJSON(options) }));
}

export async function usedPasskey(options: object): Promise<unknown> {
  return answered((json) => navigator.credentials.get({ publicKey: json.parseRequestOptionsFromJSON(options) }));
}

async function answered(ask: (json: PasskeyJson) => Promise<Credential | null>): Promise<unknown> {
  const json = passkeyJson();
  if (!json) throw new Error(a().passkeyFailed);
  const credential = await ask(json).catch(() => null); // the person has changed their mind, or it took too long
  if (!credential) throw new Error(a().passkeyFailed);
  return (credential as PublicKeyCredential).toJSON();
}
