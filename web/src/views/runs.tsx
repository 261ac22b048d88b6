/** Runs, and what really happened in one of them. */

import { Inspector } from "../inspect/inspector";
import { RunList } from "../inspect/list";
import "../styles/views.css";
import "../styles/inspect.css";

export default function Runs({ id }: { id: string | null }) {
  return id ? <Inspector key={id} id={id} /> : <RunList />;
}
