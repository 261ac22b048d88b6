/** The call that imports another program's export, with its progress. */
import { ApiError, authorization, isAway, isSignedOut, Unreachable } from "../api";
import { calls } from "../people/calls";
import { readEvents } from "../ui/event-stream";
import { t } from "../words";

export interface Report {
  found: number;
  added: number;
  known: number;
  empty: number;
  refused: number;
  left_out: number;
  refusals: { title: string; why: string }[];
  sources: ("chatgpt" | "open-webui" | "librechat")[];
}

/** A report on the way, or the last one. */
type Frame = Report | { report: Report; error?: { code: string; message: string } };

export interface Ended {
  report: Report;
  error: string;
}

/** The first file in an archive of Holdfast, whose name stands at this place. */
const OWN = { name: "holdfast.json", at: 30 };

/** Import a file, and hear how far it is. */
export async function importExport(file: File, onProgress: (report: Report) => void): Promise<Ended> {
  if ((await file.slice(OWN.at, OWN.at + OWN.name.length).text()) === OWN.name) return importOwn(file);
  const headers = { ...authorization(), accept: "text/event-stream" };
  const response = await fetch("/api/imports", { method: "POST", headers, body: file }).catch(() => {
    isAway.value = true;
    throw new Unreachable();
  });
  if (response.status === 401) isSignedOut.value = true;
  if (!response.ok || !response.body) throw await explained(response);
  let ended: Ended | null = null;
  await readEvents<Frame>(response.body, (frame) => {
    if ("report" in frame) ended = { report: frame.report, error: frame.error?.message ?? "" };
    else onProgress(frame);
  });
  if (!ended) throw new Unreachable();
  return ended;
}

async function importOwn(body: File): Promise<Ended> {
  const { sessions, known } = await calls.importData(body);
  const rest = { empty: 0, refused: 0, left_out: 0, refusals: [], sources: [] };
  return { report: { found: sessions + known, added: sessions, known, ...rest }, error: "" };
}

async function explained(response: Response): Promise<ApiError> {
  const answer = await response.json().catch(() => null);
  const plain = {
    message: t().serverError(response.status),
    type: "server_error",
    code: "unknown",
    param: null,
    help: null,
  };
  return new ApiError(response.status, answer?.error ?? plain);
}
