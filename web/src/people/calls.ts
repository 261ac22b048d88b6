/** The calls of accounts, as docs/protocol/32-accounts.md gives them. */
import { ApiError, call, type Role } from "../api";
import { t } from "../words";

/** The ways to sign in that this server has. */
export interface Ways {
  accounts: boolean;
  /** There are no accounts yet: who has the code that the server has printed makes the first one. */
  first_admin: boolean;
  password: boolean;
  passkey: boolean;
  oidc?: { name: string; start: string } | null;
}

export interface Account {
  id: string;
  name: string;
  email: string;
  role: Role;
  groups: string[];
  disabled: boolean;
  has_password: boolean;
  second_factor: boolean;
  created_at: string;
  signed_in_at: string | null;
  budget?: Budget;
}

/** Whose password a link sets; `new` if the person has never signed in. */
export interface LinkOwner {
  name: string;
  new: boolean;
}

/** What an authenticator app needs: its secret, as text, as a link and as the rows of a QR code. */
export interface ProposedFactor {
  secret: string;
  sealed: string;
  link: string;
  qr: string[];
}

export interface PasskeyShown {
  id: string;
  name: string;
  added_at: string;
  used_at: string | null;
}

export interface RecoveryCodes {
  recovery_codes: string[];
}

export interface SignIn {
  id: string;
  current: boolean;
  began_at: string;
  seen_at: string;
  expires_at: string;
  stay: boolean;
  address: string;
  agent: string;
}

export type Scope = "read" | "chat" | "batch" | "admin";

export interface ApiKey {
  id: string;
  name: string;
  owner: string;
  account: string | null;
  prefix: string;
  scopes: Scope[] | null;
  models: string[] | null;
  agents: string[] | null;
  made_by: string;
  created_at: string;
  expires_at: string | null;
  last_used_at: string | null;
  budget: Budget;
}

export interface NewKey {
  name: string;
  scopes: Scope[];
  models: string[] | null;
  agents: string[] | null;
  expires_in_days: number | null;
  budget: Budget;
}

/** A key as it is shown once. */
export type MadeKey = ApiKey & { key: string };

export interface Group {
  id: string;
  name: string;
  /** Null for all models. */
  models: string[] | null;
  agents: string[];
  /** Of all of its people together, and of each of them. */
  budget?: Budget;
  each?: Budget;
}

export interface ResetLink {
  token: string;
  path: string;
  url: string | null;
}

export interface UsageRow {
  day: string;
  model: string;
  runs: number;
  input_tokens: number;
  output_tokens: number;
  cost: number;
  /** Of an admin's list: whose it is, and the name of the person, if it is one. */
  owner?: string;
  person?: string;
}

export interface Usage {
  usage: UsageRow[];
  since: string;
  until: string;
  currency: string;
}

/** What a person or a group may use. What is not there has no limit. */
export interface Budget {
  tokens_per_day?: number;
  tokens_per_month?: number;
  cost_per_day?: number;
  cost_per_month?: number;
  runs_at_once?: number;
  requests_per_minute?: number;
  bytes_stored?: number;
}

export interface NewPerson {
  name: string;
  email: string;
  role: Role;
  groups: string[];
  budget?: Budget;
}

/** `before` is where the next page starts. */
export interface PeoplePage {
  people: Account[];
  before: string | null;
}

export type PersonChange = Partial<NewPerson & { disabled: boolean }>;

/** How many chats an archive has brought, how many are known already, and how many could not be taken, with the reason of the first. */
export interface Imported {
  sessions: number;
  known: number;
  refused: number;
  reason: string | null;
}

const FACTOR = "/api/account/second-factor";
const PASSKEYS = "/api/account/passkeys";

/** A path of what people may do with their data. */
export const EXPORT = "/api/account/export";

/** The keys of a person, or, for an admin, all of them and those of services. */
export type KeysPath = "/api/keys" | "/api/admin/keys";

/** How much of a limit is left. */
export interface Rest {
  limit: number;
  used: number;
  left: number;
}

/** A limit of tokens or money for a day or a month, and when it begins anew. */
export interface Limit {
  of: "owner" | "key" | "group";
  id: string;
  per: "day" | "month";
  renews_at: string;
  tokens: Rest | null;
  cost: Rest | null;
}

export const calls = {
  ways: () => call<Ways>("GET", "/api/sign-in"),
  signIn: (body: { name: string; password: string; stay: boolean; code: string }) =>
    call<Account>("POST", "/api/sign-in", { body }),
  firstAdmin: (body: { code: string; name: string; email: string; password: string }) =>
    call<Account>("POST", "/api/first-admin", { body }),
  personOfLink: (token: string) => call<LinkOwner>("POST", "/api/reset-password/person", { body: { token } }),
  resetPassword: (body: { token: string; password: string; code: string; keep_keys: boolean }) =>
    call<Account>("POST", "/api/reset-password", { body }),

  account: () => call<Account>("GET", "/api/account"),
  changeAccount: (body: { name: string; email: string }) => call<Account>("PATCH", "/api/account", { body }),
  prove: (password: string, code: string) => call<void>("POST", "/api/account/proof", { body: { password, code } }),
  proveByPasskey: (answer: unknown) => call<void>("POST", "/api/account/proof", { body: { answer } }),
  changePassword: (current: string, password: string) =>
    call<void>("PUT", "/api/account/password", { body: { current, password } }),
  deleteAccount: (password: string) => call<unknown>("DELETE", "/api/account", { body: { password } }),
  importData: (file: Blob) => upload<Imported>("/api/account/import", file),
  signIns: () => call<{ sign_ins: SignIn[] }>("GET", "/api/account/sign-ins"),
  endSignIn: (id: string) => call<void>("DELETE", `/api/account/sign-ins/${id}`),
  endOtherSignIns: () => call<{ ended: number }>("DELETE", "/api/account/sign-ins"),

  factor: () => call<{ app: boolean; recovery_codes: number }>("GET", FACTOR),
  proposeFactor: (password: string) => call<ProposedFactor>("POST", FACTOR, { body: { password } }),
  addFactor: (sealed: string, code: string) => call<RecoveryCodes>("PUT", FACTOR, { body: { sealed, code } }),
  removeFactor: (code: string) => call<void>("DELETE", FACTOR, { body: { code } }),
  renewCodes: (code: string) => call<RecoveryCodes>("POST", `${FACTOR}/recovery-codes`, { body: { code } }),

  passkeys: () => call<{ passkeys: PasskeyShown[] }>("GET", PASSKEYS),
  passkeyOptions: (password: string) => call<object>("POST", `${PASSKEYS}/options`, { body: { password } }),
  addPasskey: (name: string, answer: unknown) => call<void>("POST", PASSKEYS, { body: { name, answer } }),
  removePasskey: (id: string) => call<void>("DELETE", `${PASSKEYS}/${id}`),
  passkeySignInOptions: () => call<object>("POST", "/api/sign-in/passkey/options"),
  signInWithPasskey: (answer: unknown) => call<Account>("POST", "/api/sign-in/passkey", { body: { answer } }),

  keys: (path: KeysPath) => call<{ keys: ApiKey[] }>("GET", path),
  makeKey: (path: KeysPath, body: NewKey) => call<MadeKey>("POST", path, { body }),
  revokeKey: (path: KeysPath, id: string) => call<void>("DELETE", `${path}/${id}`),
  rotateKey: (path: KeysPath, id: string, overlap_hours: number) =>
    call<MadeKey>("POST", `${path}/${id}/rotate`, { body: { overlap_hours } }),

  /** For admins: of any key. */
  limitKey: (id: string, budget: Budget) => call<ApiKey>("PATCH", `/api/admin/keys/${id}`, { body: { budget } }),

  budget: () => call<{ limits: Limit[]; currency: string }>("GET", "/api/budget"),
  usage: (path: string) => call<Usage>("GET", path),

  people: (before: string | null, limit: number) =>
    call<PeoplePage>(
      "GET",
      `/api/admin/people?${new URLSearchParams({ limit: String(limit), ...(before && { before }) })}`,
    ),
  findPeople: (query: string) => call<PeoplePage>("GET", `/api/admin/people?${new URLSearchParams({ query })}`),
  addPerson: (body: NewPerson) => call<Account & { reset: ResetLink | null }>("POST", "/api/admin/people", { body }),
  changePerson: (id: string, body: PersonChange) => call<Account>("PATCH", `/api/admin/people/${id}`, { body }),
  /** `data` is `keep` or `delete`: what happens to the person's chats. */
  deletePerson: (id: string, data: string) => call<unknown>("DELETE", `/api/admin/people/${id}?data=${data}`),
  resetFactor: (id: string) => call<Account>("DELETE", `/api/admin/people/${id}/second-factor`),
  resetLink: (id: string) => call<{ reset: ResetLink }>("POST", `/api/admin/people/${id}/reset-link`),

  groups: () => call<{ groups: Group[] }>("GET", "/api/admin/groups"),
  addGroup: (body: Omit<Group, "id">) => call<Group>("POST", "/api/admin/groups", { body }),
  changeGroup: (id: string, body: Omit<Group, "id">) => call<Group>("PATCH", `/api/admin/groups/${id}`, { body }),
  deleteGroup: (id: string) => call<void>("DELETE", `/api/admin/groups/${id}`),
};

/** Send a file as it is. */
async function upload<T>(path: string, file: Blob): Promise<T> {
  const headers = { "content-type": file.type || "application/zip" };
  const response = await fetch(path, { method: "POST", body: file, headers });
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer as T;
  const unknown = { message: t().serverError(response.status), type: "server_error", code: "unknown", param: null };
  throw new ApiError(response.status, answer?.error ?? unknown);
}

/** The link that a person gets, on the server's public address or on this one. */
export function linkOf({ url, path }: ResetLink): string {
  return url ?? location.origin + path;
}
