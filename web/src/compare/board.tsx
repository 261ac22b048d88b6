/** The panes of one comparison, and what can be done with all of them. */

import { Eye } from "lucide";
import { useEffect, useState } from "preact/hooks";
import { textOf } from "../chat/content";
import { namesOf } from "../files/attached";
import { AttachedFiles } from "../files/shown";
import type { Comparison, Pane as PaneInfo } from "../types";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { t } from "../words";
import { w } from "../words/synthesis";
import { AskBox } from "./ask-box";
import { Pane } from "./pane";
import type { OpenComparison } from "./state";
import { SynthesisPane, Synthesize } from "./synthesis";
import { isBlind, isVoteOnThese, type Winner } from "./types";

interface BoardProps {
  comparison: OpenComparison;
  info: Comparison;
}

export function Board({ comparison, info }: BoardProps) {
  const [expanded, setExpanded] = useState<number | null>(null);
  const panes = useElement<HTMLDivElement>();
  const isRunning = comparison.isRunning;
  const made = info.synthesis;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      if (document.querySelector("dialog[open], :popover-open")) return; // it closes that first
      if (comparison.isRunning || comparison.synthesis.value) comparison.stop();
      else setExpanded(null);
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [comparison]);
  const show = (pane: number) =>
    panes.current.children[pane]?.scrollIntoView({ behavior: "smooth", inline: "center", block: "nearest" });
  useEffect(() => {
    if (made?.status === "running") show(info.panes.length); // it may stand below the others, out of sight
  }, [made?.run_id]);
  return (
    <>
      <Prompt info={info} />
      <PaneTabs comparison={comparison} info={info} onShow={show} />
      <div
        ref={panes}
        class={`panes ${expanded === null ? "" : "is-one"}`}
        data-count={info.panes.length + (made ? 1 : 0)}
        data-status={isRunning ? "running" : info.status}
        tabIndex={0}
        role="group"
        aria-label={t().responses}
      >
        {info.panes.map((pane) => (
          <Pane
            key={pane.pane}
            comparison={comparison}
            info={info}
            pane={pane}
            live={comparison.live.value.get(pane.pane) ?? null}
            isExpanded={expanded === pane.pane}
            onExpand={() => setExpanded(expanded === null ? pane.pane : null)}
          />
        ))}
        {made && (
          <SynthesisPane
            comparison={comparison}
            info={info}
            made={made}
            isExpanded={expanded === info.panes.length}
            onExpand={() => setExpanded(expanded === null ? info.panes.length : null)}
          />
        )}
      </div>
      {isRunning && info.lifetime === "detached" && <p class="compare-note">{t().keepsGoing}</p>}
      {!isRunning && <WhatHappened comparison={comparison} info={info} />}
      {!isRunning && <Vote comparison={comparison} info={info} />}
      {!isRunning && <Synthesize comparison={comparison} info={info} />}
      <AskBox
        key={info.id}
        label={t().nextPrompt}
        placeholder={isRunning ? t().generatingAll : t().followUpAll}
        canSend={!isRunning}
        onSend={(prompt) => comparison.turn(prompt)}
        onStop={isRunning ? () => comparison.stop() : undefined}
      />
      <Announcer info={info} isRunning={isRunning} />
    </>
  );
}

/** Why there is no answer, where the page was left, and a way to get one. */
function WhatHappened({ comparison, info }: BoardProps) {
  const left = info.panes.filter(({ settlement }) => settlement?.by === "disconnect");
  if (!left.length || info.vote) return null;
  return (
    <p class="compare-note" role="status">
      {t().pageClosed}.{" "}
      <button type="button" class="small" onClick={() => comparison.rerun()}>
        {t().runAgain}
      </button>
    </p>
  );
}

function Prompt({ info }: { info: Comparison }) {
  const [last, earlier] = [info.prompts.at(-1) ?? info.prompt, info.prompts.slice(0, -1)];
  return (
    <header class="compare-prompt">
      {earlier.length > 0 && (
        <details>
          <summary>{t().earlierPrompts(earlier.length)}</summary>
          <ol>
            {earlier.map((each, index) => (
              <li key={index} class="as-written" dir="auto">
                {textOf(each) || namesOf(each) || t().image}
              </li>
            ))}
          </ol>
        </details>
      )}
      <div class="asked" tabIndex={0}>
        <AttachedFiles content={last} session={null} />
        <p class="as-written" dir="auto">
          {textOf(last)}
        </p>
      </div>
    </header>
  );
}

/** On a phone the panes are cards beside one another: these lead to each, and tell how far it is. */
function PaneTabs({ comparison, info, onShow }: BoardProps & { onShow: (pane: number) => void }) {
  const made = info.synthesis;
  const asking = [...comparison.live.value].filter(([, run]) => run.version.value >= 0 && run.open.length);
  const isAsking = new Set(asking.map(([pane]) => pane));
  return (
    <nav class="pane-tabs" aria-label={t().responses}>
      {info.panes.map((pane) => (
        <button
          key={pane.pane}
          type="button"
          class={`small ${isAsking.has(pane.pane) ? "asking" : standing(pane)}`}
          onClick={() => onShow(pane.pane)}
        >
          {pane.label}
          <span class="dot" aria-hidden="true" />
          <span class="sr-only">{isAsking.has(pane.pane) ? t().needsApproval : toldStanding(pane)}</span>
        </button>
      ))}
      {made && (
        <button type="button" class={`small ${standing(made)}`} onClick={() => onShow(info.panes.length)}>
          {w().synthesis}
          <span class="dot" aria-hidden="true" />
          <span class="sr-only">{toldStanding(made)}</span>
        </button>
      )}
    </nav>
  );
}

type Standing = Pick<PaneInfo, "status" | "settlement">;

function toldStanding({ status, settlement }: Standing): string {
  return settlement ? t().outcomes[settlement.outcome] : t().statuses[status];
}

export function standing({ status, settlement }: Standing): string {
  return status === "settled" ? (settlement?.outcome ?? "settled") : status;
}

function Vote({ comparison, info }: BoardProps) {
  const able = info.panes.filter(({ settlement }) => settlement?.outcome === "completed");
  if (info.vote)
    return (
      <p class="vote-told">{`${toldVote(info, info.vote.winner)} ${isVoteOnThese(info) ? "" : t().votedEarlier}`}</p>
    );
  if (info.panes.length < 2 || (info.blind && info.revealed)) return null;
  return (
    <section class="vote" aria-label={t().vote}>
      <h2>{able.length ? t().whichBest : t().noneCanWin}</h2>
      <div class="buttons">
        {able.map(({ pane, label, model }) => (
          <button key={pane} type="button" class="winner" onClick={() => comparison.vote(pane)}>
            <span class="pane-label">{label}</span>
            {model && able.length < 5 && <span class="wide-only">{model}</span>}
          </button>
        ))}
        {able.length > 1 && (
          <button type="button" onClick={() => comparison.vote("tie")}>
            {t().tie}
          </button>
        )}
        <button type="button" onClick={() => comparison.vote("none")}>
          {t().allBad}
        </button>
        {isBlind(info) && (
          <button type="button" class="quiet" onClick={() => comparison.reveal()}>
            <Icon node={Eye} size={16} /> {t().revealWithoutVote}
          </button>
        )}
      </div>
    </section>
  );
}

function toldVote(info: Comparison, winner: Winner): string {
  if (winner === "tie") return t().calledTie;
  if (winner === "none") return t().votedAllBad;
  const pane = info.panes[winner];
  return t().youChose(pane?.label ?? "", pane?.model ?? "");
}

/** Tells a screen reader that panes have ended, and how: never each word of them. */
function Announcer({ info, isRunning }: { info: Comparison; isRunning: boolean }) {
  const ended = info.panes.filter(({ status }) => status === "settled");
  const all = ended.map((pane) => `${pane.label}: ${toldStanding(pane)}`);
  if (info.synthesis) all.push(`${w().synthesis}: ${toldStanding(info.synthesis)}`);
  const told = all.join(", ");
  return (
    <div class="sr-only" role="status" aria-live="polite">
      {isRunning && !ended.length ? t().allStarted : told}
    </div>
  );
}
