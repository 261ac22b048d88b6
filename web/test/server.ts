/** A server as far as a session's view needs one: it answers `fetch`, and sends what a test tells it to. */
import { vi } from "vitest";
import type { FeedFrame, OpenSession, Run } from "../src/types";
import { viewOf } from "./samples";

export class Server {
  readonly views = new Map<string, OpenSession>();
  runs: Run[] = [];
  /** How often each path was requested, without its query. */
  readonly asked: string[] = [];
  /** The queries of the event streams that were opened. */
  readonly opened: URLSearchParams[] = [];
  #stream: ReadableStreamDefaultController<Uint8Array> | null = null;

  constructor() {
    vi.stubGlobal("fetch", (path: string, init: RequestInit = {}) => this.#answer(new URL(path, "http://page"), init));
  }

  /** Show a session. */
  has(id: string, changes: Partial<OpenSession> = {}): void {
    this.views.set(id, viewOf({ id, ...changes }));
  }

  /** Send frames of a session's feed on the newest stream, each with the cursor after it. */
  send(session: string, ...frames: [cursor: string, frame: FeedFrame][]): void {
    const lines = frames.map(([cursor, frame]) => `id: ${session}@${cursor}\ndata: ${JSON.stringify(frame)}\n\n`);
    this.#stream?.enqueue(new TextEncoder().encode(lines.join("")));
  }

  /** Cut the newest stream. */
  cut(): void {
    this.#stream?.error(new TypeError("network"));
  }

  async #answer({ pathname, searchParams }: URL, init: RequestInit): Promise<Response> {
    this.asked.push(pathname);
    if (pathname === "/api/events") return this.#open(searchParams, init.signal ?? null);
    if (pathname === "/api/runs") return Response.json({ runs: this.runs, next: null });
    if (pathname === "/api/sessions") return Response.json({ sessions: [], next: null });
    const view = this.views.get(pathname.split("/").at(-1) ?? "");
    const missing = { error: { message: "not there", type: "not_found", code: "session_not_found", param: null } };
    return view ? Response.json(view) : Response.json(missing, { status: 404 });
  }

  #open(query: URLSearchParams, signal: AbortSignal | null): Response {
    this.opened.push(query);
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#stream = controller;
        signal?.addEventListener("abort", () => controller.error(signal.reason), { once: true });
      },
    });
    return new Response(body);
  }
}
