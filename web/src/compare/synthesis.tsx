/** One answer that a model makes of those of the panes, beside them, and the button for it. */
import { Combine, Ellipsis, Maximize2, Minimize2, RefreshCw, ScanSearch, Shuffle, Square, TriangleAlert } from "lucide";
import { useState } from "preact/hooks";
import { money } from "../chat/figures";
import { ModelDialog } from "../chat/model-dialog";
import { tellOutcome } from "../chat/outcome";
import { navigate } from "../router";
import { modelForNew } from "../state/models";
import type { Comparison, Synthesis } from "../types";
import { CopyButton } from "../ui/copy";
import { Icon } from "../ui/icon";
import { Menu, MenuItem } from "../ui/menu";
import { t } from "../words";
import { w } from "../words/synthesis";
import { Words } from "./pane";
import { change, setup } from "./setup";
import type { OpenComparison } from "./state";

interface SynthesisProps {
  comparison: OpenComparison;
  info: Comparison;
}

/** The model is chosen once; after that it is one press. */
export function Synthesize({ comparison, info }: SynthesisProps) {
  const [isChoosing, setChoosing] = useState(false);
  const model = setup.value.synthesis;
  const able = info.panes.filter(({ settlement, text }) => settlement?.outcome === "completed" && text);
  if (able.length < 2 || (info.synthesis && !info.synthesis.old)) return null;
  return (
    <div class="synthesize">
      <button type="button" onClick={() => (model ? comparison.synthesize(model) : setChoosing(true))}>
        <Icon node={Combine} size={16} /> {model ? w().synthesizeWith(model) : w().synthesize}
      </button>
      {isChoosing && <Choose comparison={comparison} onClose={() => setChoosing(false)} />}
    </div>
  );
}

function Choose({ comparison, onClose }: { comparison: OpenComparison; onClose: () => void }) {
  return (
    <ModelDialog
      title={w().synthesize}
      chosen={setup.value.synthesis || modelForNew.value}
      onChoose={(model) => {
        change({ synthesis: model });
        comparison.synthesize(model);
      }}
      onClose={onClose}
    />
  );
}

interface PaneProps extends SynthesisProps {
  made: Synthesis;
  isExpanded: boolean;
  onExpand: () => void;
}

export function SynthesisPane({ comparison, info, made, isExpanded, onExpand }: PaneProps) {
  const live = comparison.synthesis.value;
  const told = made.status === "settled" ? tellOutcome(made.settlement?.outcome ?? null, made.settlement) : null;
  const labels = made.panes.map((pane) => info.panes[pane]?.label).join(", ");
  return (
    <article
      class={`pane synthesis ${told?.kind ?? ""} ${isExpanded ? "is-expanded" : ""}`}
      data-status={made.status}
      data-outcome={made.settlement?.outcome}
      aria-label={w().synthesis}
      aria-busy={made.status === "running"}
    >
      <header>
        <span class="pane-label">
          <Icon node={Combine} size={14} />
        </span>
        <h2 title={made.model}>{made.model}</h2>
        <Actions comparison={comparison} made={made} text={live?.text ?? made.text} />
        <button
          type="button"
          class="quiet icon-button expand"
          aria-label={isExpanded ? t().showAll : t().expandPane(w().synthesis)}
          title={isExpanded ? t().showAll : t().expand}
          aria-pressed={isExpanded}
          onClick={onExpand}
        >
          <Icon node={isExpanded ? Minimize2 : Maximize2} size={16} />
        </button>
      </header>
      <Words said={{ ...made, label: w().synthesis, earlier: [] }} live={live} prompts={[]} />
      {told && (
        <div class={`outcome ${told.kind}`} role="note">
          {told.kind !== "plain" && <Icon node={TriangleAlert} size={16} />}
          <span>
            <strong>{told.label}.</strong> {told.detail}
          </span>
        </div>
      )}
      <footer>
        <span class="figures">
          <span>{w().madeOf(labels)}</span>
          {made.cost !== null && <span>{money(made.cost)}</span>}
          {made.old && <span>{w().isOld}</span>}
        </span>
      </footer>
    </article>
  );
}

function Actions({ comparison, made, text }: { comparison: OpenComparison; made: Synthesis; text: string }) {
  const [isChoosing, setChoosing] = useState(false);
  if (made.status === "running")
    return (
      <button
        type="button"
        class="quiet icon-button"
        aria-label={w().stopIt}
        title={t().stopThis}
        onClick={() => comparison.stopRun(made.run_id)}
      >
        <Icon node={Square} size={16} />
      </button>
    );
  return (
    <>
      <CopyButton text={text} label={t().copyResponseOf(w().synthesis)} />
      <Menu label={t().actionsFor(w().synthesis)} icon={Ellipsis}>
        {!comparison.isRunning && (
          <>
            <MenuItem icon={RefreshCw} onClick={() => comparison.synthesize(made.model)}>
              {w().makeAgain}
            </MenuItem>
            <MenuItem icon={Shuffle} onClick={() => setChoosing(true)}>
              {w().otherModel}
            </MenuItem>
          </>
        )}
        <MenuItem icon={ScanSearch} onClick={() => navigate(`/runs/${made.run_id}`)}>
          {t().runDetails}
        </MenuItem>
      </Menu>
      {isChoosing && <Choose comparison={comparison} onClose={() => setChoosing(false)} />}
    </>
  );
}
