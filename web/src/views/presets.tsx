/** Presets and prompts: listed, made, changed, shared, deleted; and moved as a file. */
import { Download, Upload } from "lucide";
import { useState } from "preact/hooks";
import { type ImportReport, presetCalls } from "../presets/calls";
import { Presets } from "../presets/presets";
import { Prompts } from "../presets/prompts";
import { isGuest } from "../state/caller";
import { loadPresets } from "../state/presets";
import { complain } from "../state/toasts";
import "../styles/presets.css";
import "../styles/settings.css";
import "../styles/views.css";
import { Dialog } from "../ui/dialog";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { objectFrom } from "../ui/json";
import { useLoaded } from "../ui/loaded";
import { usePageTitle } from "../ui/page-title";
import { saveFrom } from "../ui/save";
import { ViewHeader } from "../ui/view-header";
import { p } from "../words/presets";

export default function PresetsView() {
  const presets = useLoaded(presetCalls.presets);
  const prompts = useLoaded(presetCalls.prompts);
  const [report, setReport] = useState<ImportReport | null>(null);
  usePageTitle(p().title);
  const load = async () => {
    await Promise.all([presets.load(), prompts.load(), loadPresets()]);
  };
  const take = async (file: File) => {
    try {
      setReport(await presetCalls.import(objectFrom(await file.text(), file.name)));
      await load();
    } catch (error) {
      complain(error);
    }
  };
  return (
    <>
      <ViewHeader title={p().title}>{!isGuest.value && <Transfer onFile={take} />}</ViewHeader>
      <div class="page settings presets">
        <Presets of={presets} onChange={load} />
        <Prompts of={prompts} groups={presets.state.is === "ready" ? presets.state.value.groups : []} onChange={load} />
      </div>
      {report && <Report report={report} onClose={() => setReport(null)} />}
    </>
  );
}

function Transfer({ onFile }: { onFile: (file: File) => void }) {
  const chooser = useElement<HTMLInputElement>();
  return (
    <>
      <button type="button" class="quiet small" title={p().import} onClick={() => chooser.current.click()}>
        <Icon node={Upload} size={16} /> <span class="wide-only">{p().import}</span>
      </button>
      <input
        ref={chooser}
        type="file"
        accept=".json,application/json"
        aria-label={p().import}
        hidden
        onChange={({ currentTarget: input }) => {
          const [file] = input.files ?? [];
          if (file) onFile(file);
          input.value = "";
        }}
      />
      <button
        type="button"
        class="quiet small"
        title={p().export}
        onClick={() => saveFrom("/api/presets/export", "holdfast-presets.json")}
      >
        <Icon node={Download} size={16} /> <span class="wide-only">{p().export}</span>
      </button>
    </>
  );
}

/** What became of each entry of a file. */
function Report({ report: { added, entries }, onClose }: { report: ImportReport; onClose: () => void }) {
  return (
    <Dialog title={p().importReport} onClose={onClose} class="narrow">
      <p role="status">{p().imported(added, entries.length)}</p>
      <ul class="report">
        {entries.map(({ kind, name, result, why }, index) => (
          <li key={index}>
            <strong dir="auto">{kind === "prompt" ? `/${name}` : name}</strong>{" "}
            <span class="badge">{p().results[result]}</span>
            {why && <p class="note">{why}</p>}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
