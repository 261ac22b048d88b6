/** The calls of comparisons. */
import { ApiError, authorization, call, isAway, isSignedOut, Unreachable } from "../api";
import type { Comparison, ComparisonStreamFrame, ListedComparison, RunFrame, Session } from "../types";
import { readEvents } from "../ui/event-stream";
import { t } from "../words";
import type { Scores, Winner } from "./types";

const at = (id: string, rest = "") => `/api/comparisons/${id}${rest}`;

export interface ScoresQuery {
  kind?: string;
  since?: string;
}

export const calls = {
  list: (before = "", limit = 20) =>
    call<{ data: ListedComparison[]; has_more: boolean }>(
      "GET",
      `/api/comparisons?${new URLSearchParams({ limit: String(limit), ...(before && { before }) })}`,
    ),
  search: (query: string) =>
    call<{ data: ListedComparison[] }>("GET", `/api/comparisons?${new URLSearchParams({ limit: "20", query })}`),
  get: (id: string) => call<Comparison>("GET", at(id)),
  remove: (id: string) => call<void>("DELETE", at(id)),
  stop: (id: string) => call<Comparison>("POST", at(id, "/stop")),
  synthesize: (id: string, model: string) => call<Comparison>("POST", at(id, "/synthesis"), { body: { model } }),
  vote: (id: string, winner: Winner) => call<Comparison>("POST", at(id, "/vote"), { body: { winner } }),
  reveal: (id: string) => call<Comparison>("POST", at(id, "/reveal")),
  continue: (id: string, pane: number) => call<Session>("POST", at(id, `/panes/${pane}/continue`), { body: {} }),
  scores: (query: ScoresQuery) => call<Scores>("GET", scoresPath(query)),
};

export function scoresPath(query: ScoresQuery, format = "json", what = "scores"): string {
  return `/api/comparisons/${what}?${new URLSearchParams({ ...query, format })}`;
}

export const streams = {
  create: "/api/comparisons",
  turn: (id: string) => at(id, "/turns"),
  rerun: (id: string) => at(id, "/rerun"),
  reroll: (id: string, pane: number) => at(id, `/panes/${pane}/reroll`),
  swap: (id: string, pane: number) => at(id, `/panes/${pane}/swap`),
};

type Take = (event: ComparisonStreamFrame) => void;

/** Ask, and hand over each event of every pane. */
export function stream(path: string, body: unknown, signal: AbortSignal, take: Take): Promise<void> {
  return read(path, { method: "POST", body: JSON.stringify(body), signal }, take);
}

/** Look on while panes answer. Who leaves stops nothing. */
export function watch(id: string, signal: AbortSignal, take: Take): Promise<void> {
  return read(at(id, "/events"), { signal }, take);
}

/** Look on while a run goes on, from its first event. */
export function follow(runId: string, signal: AbortSignal, take: (event: RunFrame) => void): Promise<void> {
  return read(`/api/runs/${runId}/events`, { signal }, take);
}

async function read<Frame>(
  path: string,
  request: RequestInit & { signal: AbortSignal },
  take: (frame: Frame) => void,
): Promise<void> {
  const headers = { ...authorization(), "content-type": "application/json", accept: "text/event-stream" };
  const response = await fetch(path, { ...request, headers, cache: "no-store" }).catch((error) => {
    if (request.signal.aborted) throw error;
    isAway.value = true;
    throw new Unreachable();
  });
  if (response.status === 401) isSignedOut.value = true;
  if (!response.ok || !response.body) throw await explained(response);
  await readEvents(response.body, take);
}

async function explained(response: Response): Promise<ApiError> {
  const answer = await response.json().catch(() => null);
  const plain = {
    message: t().serverError(response.status),
    type: "server_error",
    code: "unknown",
    param: null,
  };
  return new ApiError(response.status, answer?.error ?? plain);
}
