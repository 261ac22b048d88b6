/** One pane: a model's answer, how it ended, and what it took. A pane that did not complete never looks like a winner. */

import {
  Crown,
  Ellipsis,
  Maximize2,
  MessageSquare,
  Minimize2,
  RefreshCw,
  ScanSearch,
  Shuffle,
  Square,
  TriangleAlert,
  Zap,
} from "lucide";
import { useEffect, useRef, useState } from "preact/hooks";
import { Reasoning, Waiting } from "../chat/answer";
import { textOf } from "../chat/content";
import { money } from "../chat/figures";
import { ModelDialog } from "../chat/model-dialog";
import { tellOutcome } from "../chat/outcome";
import { Segments, segmentsOf } from "../chat/segments";
import { Markdown } from "../markdown/markdown";
import { Questions } from "../questions";
import { navigate } from "../router";
import type { LiveRun } from "../state/live";
import { complain } from "../state/toasts";
import type { Comparison, Content, EarlierAnswer, Metrics, Pane as PaneInfo, Step } from "../types";
import { CopyButton } from "../ui/copy";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { Later } from "../ui/later";
import { Menu, MenuItem } from "../ui/menu";
import { t } from "../words";
import { seconds } from "../words/time";
import { calls } from "./calls";
import type { OpenComparison } from "./state";
import { isBlind, isVoteOnThese } from "./types";

const PICTURES = () => import("../files/answer-pictures");

interface PaneProps {
  comparison: OpenComparison;
  info: Comparison;
  pane: PaneInfo;
  live: LiveRun | null;
  isExpanded: boolean;
  onExpand: () => void;
}

export function Pane({ comparison, info, pane, live, isExpanded, onExpand }: PaneProps) {
  const outcome = pane.settlement?.outcome;
  const isWinner = info.vote?.winner === pane.pane && outcome === "completed" && isVoteOnThese(info);
  const told = pane.status === "settled" ? tellOutcome(outcome ?? null, pane.settlement) : null;
  const name = pane.model ?? t().modelNamed(pane.label);
  return (
    <article
      class={`pane ${told?.kind ?? ""} ${isWinner ? "is-winner" : ""} ${isExpanded ? "is-expanded" : ""}`}
      data-pane={pane.pane}
      data-status={pane.status}
      data-outcome={outcome}
      aria-label={t().responseOf(pane.label)}
      aria-busy={pane.status === "running"}
    >
      <header>
        <span class="pane-label">{pane.label}</span>
        <h2 title={name}>{name}</h2>
        {isWinner && (
          <span class="badge good">
            <Icon node={Crown} size={14} /> {t().winner}
          </span>
        )}
        <Actions comparison={comparison} info={info} pane={pane} text={live?.text ?? pane.text ?? ""} />
        <button
          type="button"
          class="quiet icon-button expand"
          aria-label={isExpanded ? t().showAll : t().expandPane(pane.label)}
          title={isExpanded ? t().showAll : t().expand}
          aria-pressed={isExpanded}
          onClick={onExpand}
        >
          <Icon node={isExpanded ? Minimize2 : Maximize2} size={16} />
        </button>
      </header>
      <Words said={pane} live={live} prompts={info.prompts} />
      {told && (
        <div class={`outcome ${told.kind}`} role="note">
          {told.kind !== "plain" && <Icon node={TriangleAlert} size={16} />}
          <span>
            <strong>{told.label}.</strong> {told.detail}
          </span>
        </div>
      )}
      <footer>{isBlind(info) ? <span class="figures">{t().statsLater}</span> : <Figures pane={pane} />}</footer>
    </article>
  );
}

/** The words of a pane; the end of what is being said stays in sight, unless its reader has scrolled up. */
type Said = Pick<PaneInfo, "label" | "status" | "text" | "reasoning" | "earlier" | "pictures"> & { steps?: Step[] };

export function Words({ said, live, prompts }: { said: Said; live: LiveRun | null; prompts: Content[] }) {
  const version = live?.version.value ?? 0;
  const place = useElement<HTMLDivElement>();
  const isAtEnd = useRef(true);
  const isGoingOn = said.status === "running";
  const text = live?.text ?? said.text ?? "";
  const reasoning = live?.reasoning || said.reasoning || "";
  const pictures = live?.pictures ?? said.pictures ?? [];
  const isSilent = isGoingOn && !text && !reasoning && !live?.tools.length && !pictures.length;
  useEffect(() => {
    if (isGoingOn && isAtEnd.current) place.current.scrollTop = place.current.scrollHeight;
  }, [version]);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = place.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 40;
  };
  return (
    <div
      class="words"
      ref={place}
      onScroll={onScroll}
      tabIndex={0}
      role="region"
      aria-label={t().responseTextOf(said.label)}
    >
      <EarlierAnswers earlier={said.earlier ?? []} prompts={prompts} />
      {reasoning && <Reasoning text={reasoning} isGoingOn={isGoingOn && Boolean(live?.isThinking)} />}
      <Segments
        segments={live?.segments ?? segmentsOf({ content: text, steps: said.steps }, new Map())}
        isGoingOn={isGoingOn}
        waiting={new Set(live?.open.map(({ asked }) => asked.call))}
      />
      {pictures.length > 0 && <Later load={PICTURES} urls={pictures} session={null} />}
      {live && isGoingOn && <Questions live={live} isTemporary />}
      {isSilent && <Waiting notices={live?.notices ?? []} />}
      {said.status === "waiting" && <p class="note">{t().waitingForPrevious}</p>}
    </div>
  );
}

/** What this pane answered before, folded: under each prompt its own words, and how they ended. */
function EarlierAnswers({ earlier, prompts }: { earlier: (EarlierAnswer | null)[]; prompts: Content[] }) {
  if (!earlier.length) return null;
  return (
    <details class="earlier-answers">
      <summary>{t().earlierResponses(earlier.length)}</summary>
      <ol>
        {earlier.map((answer, index) => (
          <li key={index}>
            <p class="as-written asked" dir="auto">
              {textOf(prompts[index] ?? "") || t().image}
            </p>
            {answer ? <Markdown text={answer.text} /> : <p class="note">{t().noOutput}</p>}
            <Ended outcome={answer?.outcome ?? null} />
          </li>
        ))}
      </ol>
    </details>
  );
}

function Ended({ outcome }: { outcome: EarlierAnswer["outcome"] }) {
  const told = tellOutcome(outcome, null);
  return told && <p class={`outcome ${told.kind}`}>{told.label}</p>;
}

interface ActionsProps {
  comparison: OpenComparison;
  info: Comparison;
  pane: PaneInfo;
  text: string;
}

function Actions({ comparison, info, pane, text }: ActionsProps) {
  const [isSwapping, setSwapping] = useState(false);
  const goOn = () =>
    calls.continue(info.id, pane.pane).then(
      ({ id }) => navigate(`/s/${id}`),
      (error) => complain(error),
    );
  if (pane.status !== "settled") {
    return (
      <button
        type="button"
        class="quiet icon-button"
        aria-label={t().stopPane(pane.label)}
        title={t().stopThis}
        disabled={pane.status === "waiting"}
        onClick={() => comparison.stopRun(pane.run_id)}
      >
        <Icon node={Square} size={16} />
      </button>
    );
  }
  const canChange = !comparison.isRunning && !info.vote;
  return (
    <>
      <CopyButton text={text} label={t().copyResponseOf(pane.label)} />
      <Menu label={t().actionsFor(pane.label)} icon={Ellipsis}>
        {canChange && (
          <MenuItem icon={RefreshCw} onClick={() => comparison.reroll(pane.pane)}>
            {t().regenerate}
          </MenuItem>
        )}
        {canChange && !isBlind(info) && (
          <MenuItem icon={Shuffle} onClick={() => setSwapping(true)}>
            {t().changeModel}
          </MenuItem>
        )}
        {!isBlind(info) && (
          <MenuItem icon={MessageSquare} onClick={goOn}>
            {t().continueAsChat}
          </MenuItem>
        )}
        {pane.run_id && (
          <MenuItem icon={ScanSearch} onClick={() => navigate(`/runs/${pane.run_id}`)}>
            {t().runDetails}
          </MenuItem>
        )}
      </Menu>
      {isSwapping && (
        <ModelDialog
          title={t().changeModelOf(pane.label)}
          chosen={pane.model}
          onChoose={(model) => comparison.swap(pane.pane, model)}
          onClose={() => setSwapping(false)}
        />
      )}
    </>
  );
}

/** The server measures: before a pane has settled there is nothing to tell. */
function Figures({ pane }: { pane: PaneInfo }) {
  if (pane.metrics) return <Measured metrics={pane.metrics} isCompleted={pane.settlement?.outcome === "completed"} />;
  return <span class="figures" />;
}

function Measured({ metrics, isCompleted }: { metrics: Metrics; isCompleted: boolean }) {
  const about = metrics.usage_source === "estimated" ? "≈ " : "";
  const parts = [
    metrics.ttft_ms !== null && t().firstToken(seconds(metrics.ttft_ms)),
    metrics.tokens_per_second !== null && `${about}${t().tokensPerSecond(metrics.tokens_per_second)}`,
    metrics.output_tokens !== null && `${about}${t().tokens(metrics.output_tokens)}`,
    metrics.cost !== null && money(metrics.cost),
    metrics.duration_ms !== null && t().took(seconds(metrics.duration_ms)),
  ];
  return (
    <>
      <span class="figures">
        {parts.filter(Boolean).map((part, index) => (
          <span key={index}>{part}</span>
        ))}
      </span>
      {isCompleted && metrics.fastest && (
        <span class="badge">
          <Icon node={Zap} size={14} /> {t().fastestFirstToken}
        </span>
      )}
    </>
  );
}
