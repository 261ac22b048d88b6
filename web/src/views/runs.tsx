/** Runs, and what really happened in one of them. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import type { Run } from "../types";
import { Empty } from "../ui/empty";
import { ViewHeader } from "../ui/view-header";

export default function Runs({ id }: { id: string | null }) {
  const [run, setRun] = useState<Run | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (id) api.run(id).then(setRun, (error: Error) => setProblem(error.message));
  }, [id]);
  if (problem) return <Empty title="This run cannot be shown" text={problem} />;
  return (
    <>
      <ViewHeader title="Run" />
      <div class="page">
        <pre class="as-written">{run ? JSON.stringify(run, null, 2) : "…"}</pre>
      </div>
    </>
  );
}
