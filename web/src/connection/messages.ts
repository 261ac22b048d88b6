/** What tabs and the shared worker say to one another. */
import type { FeedFrame } from "../types";
import type { StreamState } from "./streams";

/** In the place of a session: the list of sessions. What changes in it can be read twice without harm. */
export const LIST = "list";

export type ToWorker =
  | { type: "hello"; key: string }
  | { type: "key"; key: string }
  | { type: "watch"; session: string; after: string }
  | { type: "unwatch"; session: string }
  | { type: "alive" }
  | { type: "wake" }
  | { type: "bye" };

export type FromWorker =
  | { type: "events"; session: string; events: FeedFrame[] }
  | { type: "state"; state: StreamState }
  | { type: "key"; key: string }
  | { type: "lost" };
