/** The typed client of the public API. Every call answers, or throws an ApiError that says why. */
import { signal } from "@preact/signals";
import type { Content, ErrorInfo, ListedRun, ListedSession, Models, OpenSession, Run, Session } from "./types";
import { t } from "./words";

const KEY = "holdfast.key";
/** Refusals of a password or code. They are not ones of the caller: who has mistyped the old password is still signed in. */
const MISTYPED = new Set(["wrong_password", "wrong_code", "second_factor_needed", "passkey_refused"]);

/**
 * The access key. It lives in this tab's storage and in the other tabs' memory, and in the browser's storage if its owner
 * asked for that; never in a link or a cookie.
 */
export const key = signal(sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "");
/** The server does not know the caller: nobody is signed in, and there is no key, or not the right one. */
export const isSignedOut = signal(false);
/** The server cannot be reached. What is on the page stays, and the page comes back by itself. */
export const isAway = signal(false);

export function setKey(value: string, isRemembered = false): void {
  key.value = value;
  isSignedOut.value = false;
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
  if (value && isRemembered) localStorage.setItem(KEY, value);
  else if (localStorage.getItem(KEY) !== value) localStorage.removeItem(KEY); // another key, or none any more
}

/** Set while the person is asked to prove again who it is. It is called with whether that was done. */
export const proofWanted = signal<((isProved: boolean) => void) | null>(null);
let proving: Promise<boolean> | null = null;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly info: ErrorInfo,
    readonly extra: Record<string, unknown> = {},
    /** Seconds after which to try again, if the server has said so. */
    readonly retryAfter: number | null = null,
  ) {
    super(info.message);
  }
  get code(): string {
    return this.info.code;
  }
}

/** No answer came: the server is away, or the network. */
export class Unreachable extends Error {
  constructor() {
    super(t().unreachable);
  }
}

/** What a path answers, for the reader's disk. */
export async function download(path: string): Promise<Blob> {
  const response = await send("GET", path, {});
  if (response.ok) return response.blob();
  const problem = await problemOf(response);
  if (await isProved(problem)) return download(path);
  throw problem;
}

/** Whether a call was refused for want of a proof, and the person has given it: then the call can be repeated. */
async function isProved(problem: ApiError): Promise<boolean> {
  if (problem.code !== "sign_in_again") return false;
  proving ??= new Promise((resolve) => {
    proofWanted.value = (isDone) => {
      proofWanted.value = proving = null;
      resolve(isDone);
    };
  });
  return proving;
}

async function problemOf(response: Response): Promise<ApiError> {
  const { error, ...extra } = (await response.json().catch(() => null)) ?? {};
  return new ApiError(response.status, error ?? unexplained(response), extra, retryAfter(response));
}

/** A file of the server, which the browser keeps for as long as the server says. */
async function fetchFile(path: string): Promise<Blob> {
  const response = await send("GET", path, { cache: "default" });
  if (response.status === 401) isSignedOut.value = true;
  if (!response.ok) throw new ApiError(response.status, unexplained(response));
  return response.blob();
}

export interface CallOptions {
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
  keepalive?: boolean;
  cache?: RequestCache;
}

export async function call<T>(method: string, path: string, options: CallOptions = {}): Promise<T> {
  const used = key.value;
  const response = await send(method, path, options);
  if (response.status === 401 && used !== key.value) return call(method, path, options); // one has come meanwhile
  if (response.status === 204) return undefined as T;
  const answer = response.ok ? await response.json().catch(() => null) : null;
  if (answer !== null) return answer as T;
  const problem = await problemOf(response);
  if (await isProved(problem)) return call(method, path, options);
  if (response.status === 401 && !MISTYPED.has(problem.code)) isSignedOut.value = true;
  throw problem;
}

async function send(method: string, path: string, options: CallOptions): Promise<Response> {
  const headers: Record<string, string> = { ...authorization(), ...options.headers };
  if (options.body !== undefined) headers["content-type"] = "application/json";
  const body = options.body === undefined ? null : JSON.stringify(options.body);
  const { signal = null, keepalive = false, cache = "no-store" } = options;
  try {
    const response = await fetch(path, { method, headers, body, signal, keepalive, cache });
    isAway.value = false;
    return response;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    isAway.value = true;
    throw new Unreachable();
  }
}

function retryAfter(response: Response): number | null {
  const value = response.headers.get("retry-after");
  return value === null ? null : Number(value);
}

export function authorization(): Record<string, string> {
  return key.value ? { authorization: `Bearer ${key.value}` } : {};
}

function unexplained(response: Response): ErrorInfo {
  return { message: t().serverError(response.status), type: "server_error", code: "unknown", param: null, help: null };
}

/** Wait for so many milliseconds, and for as long as the server cannot be reached. */
export async function reachable(pause: number): Promise<void> {
  do await new Promise((resolve) => setTimeout(resolve, pause));
  while (isAway.value);
}

/** Try until the server has answered: with an idempotency key a start that was heard twice happens once. */
async function insist<T>(path: string, body: unknown): Promise<T> {
  const headers = { "idempotency-key": crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` };
  for (let attempt = 0; ; attempt++) {
    try {
      return await call<T>("POST", path, { body, headers });
    } catch (error) {
      if (!(error instanceof Unreachable) || attempt === 3) throw error;
      await reachable(500 * 2 ** attempt);
    }
  }
}

export type IfBusy = "reject" | "queue" | "interrupt";

export interface StartOptions {
  model?: string | null | undefined;
  if_busy?: IfBusy;
  params?: Record<string, unknown>;
}

export interface AgainOptions extends StartOptions {
  message_id: string;
  last_message_id?: string | undefined;
}

/** The caller as the server sees it. */
export interface Caller {
  owner: string;
  local: boolean;
  admin: boolean;
  name: string;
  role: Role;
  /** As the only user of the server's machine, by a key, or signed in. */
  via: "local" | "key" | "sign_in";
  account: string | null;
  scopes: string[];
  /** The server requires a second factor, and nothing else can be done before it is set up. */
  lacks_second_factor: boolean;
}

/** Which chats a list has. */
export interface ListFilter {
  folder?: string;
  tag?: string;
  archived?: boolean;
}

const asQuery = (filter: ListFilter) =>
  Object.fromEntries(Object.entries(filter).map(([name, value]) => [name, String(value)]));

export type Role = "guest" | "member" | "admin";

export const api = {
  me: () => call<Caller>("GET", "/api/me"),
  models: () => call<Models>("GET", "/api/models"),

  sessions: (query = "", before = "", limit = 50, filter: ListFilter = {}) =>
    call<{ sessions: ListedSession[]; next: string | null; feed: string }>(
      "GET",
      `/api/sessions?${new URLSearchParams({ limit: String(limit), ...(query && { query }), ...(before && { before }), ...asQuery(filter) })}`,
    ),
  session: (id: string, signal?: AbortSignal) =>
    call<OpenSession>("GET", `/api/sessions/${id}`, signal ? { signal } : {}),
  /** With its pictures in it, as a file on a disk must have them. */
  wholeSession: (id: string) => call<OpenSession>("GET", `/api/sessions/${id}?files=inline`),
  /** Of a session by its id, or of a link by its path. */
  picture: (id: string, hash: string) => fetchFile(`${id.startsWith("/") ? id : `/api/sessions/${id}`}/files/${hash}`),
  createSession: (body: Partial<Pick<Session, "title" | "model" | "system" | "params" | "on_break" | "preset">>) =>
    call<Session>("POST", "/api/sessions", { body }),
  changeSession: (
    id: string,
    body: Partial<
      Pick<Session, "title" | "pinned" | "model" | "system" | "params" | "on_break" | "preset" | "head_id">
    >,
  ) => call<Session>("PATCH", `/api/sessions/${id}`, { body }),
  /** Tell what the caller has seen, or was told of. */
  noteSeen: (id: string, body: { seen?: number; told?: number }) =>
    call<void>("PUT", `/api/sessions/${encodeURIComponent(id)}/seen`, { body }),
  deleteSession: (id: string, keepalive = false) => call<void>("DELETE", `/api/sessions/${id}`, { keepalive }),
  deleteSessions: (sessions: string[], keepalive = false) =>
    call<{ failed: { id: string; message: string }[] }>("POST", "/api/sessions/delete", {
      body: { sessions },
      keepalive,
    }),

  start: (id: string, input: Content, options: StartOptions = {}) =>
    insist<Run>(`/api/sessions/${id}/runs`, { input, ...options }),
  regenerate: (id: string, options: AgainOptions) => insist<Run>(`/api/sessions/${id}/regenerate`, options),
  continue: (id: string, options: AgainOptions) => insist<Run>(`/api/sessions/${id}/continue`, options),
  edit: (id: string, input: Content, options: AgainOptions) =>
    insist<Run>(`/api/sessions/${id}/edit`, { input, ...options }),
  fork: (id: string, message_id: string) => call<Session>("POST", `/api/sessions/${id}/fork`, { body: { message_id } }),

  changeQueued: (id: string, run: string, body: { input?: Content; place?: number }) =>
    call<unknown>("PATCH", `/api/sessions/${id}/queue/${run}`, { body }),
  sendQueued: (id: string, run: string) => call<void>("POST", `/api/sessions/${id}/queue/${run}/send`),
  stopSession: (id: string) => call<unknown>("POST", `/api/sessions/${id}/stop`),
  dropQueued: (id: string, run: string) => call<void>("DELETE", `/api/sessions/${id}/queue/${run}`),

  run: (id: string) => call<Run>("GET", `/api/runs/${id}`),
  runs: (query: { session_id?: string; status?: string; outcome?: string; limit?: string; before?: string } = {}) =>
    call<{ runs: ListedRun[]; next: string | null }>("GET", `/api/runs?${new URLSearchParams(query)}`),
  steer: (runId: string, input: string) => call<Run>("POST", `/api/runs/${runId}/steer`, { body: { input } }),
  stop: (runId: string) => call<Run>("POST", `/api/runs/${runId}/stop`),
};
