/** Chats of another program are brought in: a file is chosen, and what became of its chats is said. */
import { Download, Upload } from "lucide";
import { useState } from "preact/hooks";
import { EXPORT } from "../people/calls";
import { isPerson } from "../state/caller";
import { loadSessions } from "../state/sessions";
import { useAttempt } from "../ui/attempt";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { Problem } from "../ui/problem";
import { saveFrom } from "../ui/save";
import { number } from "../words/count";
import { i } from "../words/importing";
import { importExport, type Report } from "./calls";

export default function Import() {
  const file = useElement<HTMLInputElement>();
  const [report, setReport] = useState<Report | null>(null);
  const [stopped, setStopped] = useState("");
  const trying = useAttempt();
  const take = async (chosen: File | undefined) => {
    if (!chosen) return;
    setReport(null);
    setStopped("");
    await trying.attempt(async () => {
      const ended = await importExport(chosen, setReport);
      setReport(ended.report.found || !ended.error ? ended.report : null);
      setStopped(ended.error);
    });
    file.current.value = "";
    await loadSessions();
  };
  return (
    <section aria-labelledby="import">
      <h2 id="import">{i().title}</h2>
      <p class="note">{i().note}</p>
      <div class="line">
        <button type="button" disabled={trying.isBusy} onClick={() => file.current.click()}>
          <Icon node={Upload} size={16} /> {i().choose}
        </button>
        {!isPerson.value && (
          <button type="button" onClick={() => saveFrom(EXPORT, "holdfast.zip")}>
            <Icon node={Download} size={16} /> {i().exportAll}
          </button>
        )}
        <input
          ref={file}
          type="file"
          accept=".zip,.json,application/zip,application/json"
          hidden
          aria-label={i().choose}
          onChange={(event) => take(event.currentTarget.files?.[0])}
        />
      </div>
      <output>
        {trying.isBusy && <p>{report ? i().progress(number(report.found), number(report.added)) : i().reading}</p>}
      </output>
      <Problem of={{ problem: trying.problem || stopped, field: null }} />
      {report && !trying.isBusy && <Told report={report} />}
    </section>
  );
}

function Told({ report }: { report: Report }) {
  const { found, added, known, empty, refused, left_out, refusals } = report;
  return (
    <div class="report" role="status">
      <p>
        <strong>{i().found(found)}</strong>
      </p>
      <ul>
        <li>{i().added(added)}</li>
        {known > 0 && <li>{i().known(known)}</li>}
        {empty > 0 && <li>{i().empty(empty)}</li>}
        {refused > 0 && <li>{i().refused(refused)}</li>}
        {left_out > 0 && <li>{i().leftOut(left_out)}</li>}
      </ul>
      {refusals.length > 0 && (
        <details>
          <summary>{i().why}</summary>
          <ul>
            {refusals.map(({ title, why }, at) => (
              <li key={at}>
                <bdi>{title || i().untitled}</bdi>: <span dir="ltr">{why}</span>
              </li>
            ))}
          </ul>
        </details>
      )}
    </div>
  );
}
