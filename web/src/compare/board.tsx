/** The panes of one comparison, and what can be done with all of them. */
import { Eye } from "lucide";
import { useEffect, useRef, useState } from "preact/hooks";
import { textOf } from "../chat/content";
import { Icon } from "../ui/icon";
import { AskBox } from "./ask-box";
import { Pane } from "./pane";
import type { OpenComparison } from "./state";
import { type Comparison, isBlind, type PaneInfo, type Winner } from "./types";

interface BoardProps {
  comparison: OpenComparison;
  info: Comparison;
}

export function Board({ comparison, info }: BoardProps) {
  const [expanded, setExpanded] = useState<number | null>(null);
  const panes = useRef<HTMLDivElement>(null);
  const isRunning = comparison.isRunning;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      if (document.querySelector("dialog[open], :popover-open")) return; // it closes that first
      if (comparison.isRunning) comparison.stop();
      else setExpanded(null);
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [comparison]);
  const show = (pane: number) =>
    panes.current!.children[pane]?.scrollIntoView({ behavior: "smooth", inline: "center", block: "nearest" });
  return (
    <>
      <Prompt info={info} />
      <PaneTabs info={info} onShow={show} />
      <div
        ref={panes}
        class={`panes ${expanded === null ? "" : "is-one"}`}
        data-count={info.panes.length}
        data-status={info.status}
        tabIndex={0}
        role="group"
        aria-label="Answers"
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
      </div>
      {!isRunning && <Vote comparison={comparison} info={info} />}
      <AskBox
        key={info.id}
        label="Next prompt for all panes"
        placeholder={isRunning ? "The panes are answering" : "Ask all of them what comes next"}
        canSend={!isRunning}
        onSend={(prompt) => comparison.turn(prompt)}
        onStop={isRunning ? () => comparison.stop() : undefined}
      />
      <Announcer info={info} isRunning={isRunning} />
    </>
  );
}

function Prompt({ info }: { info: Comparison }) {
  const [last, earlier] = [info.prompts.at(-1) ?? info.prompt, info.prompts.slice(0, -1)];
  return (
    <header class="compare-prompt">
      {earlier.length > 0 && (
        <details>
          <summary>
            {earlier.length} earlier {earlier.length === 1 ? "prompt" : "prompts"}
          </summary>
          <ol>
            {earlier.map((each, index) => (
              <li key={index} class="as-written" dir="auto">
                {textOf(each)}
              </li>
            ))}
          </ol>
        </details>
      )}
      <p class="as-written" dir="auto" tabIndex={0}>
        {textOf(last) || "A picture"}
      </p>
    </header>
  );
}

/** On a phone the panes are cards beside one another: these lead to each, and tell how far it is. */
function PaneTabs({ info, onShow }: { info: Comparison; onShow: (pane: number) => void }) {
  return (
    <nav class="pane-tabs" aria-label="Panes">
      {info.panes.map((pane) => (
        <button key={pane.pane} type="button" class={`small ${standing(pane)}`} onClick={() => onShow(pane.pane)}>
          {pane.label}
          <span class="dot" aria-hidden="true" />
          <span class="sr-only">{pane.settlement?.outcome ?? pane.status}</span>
        </button>
      ))}
    </nav>
  );
}

export function standing({ status, settlement }: PaneInfo): string {
  return status === "settled" ? (settlement?.outcome ?? "settled") : status;
}

function Vote({ comparison, info }: BoardProps) {
  const able = info.panes.filter(({ settlement }) => settlement?.outcome === "completed");
  if (info.vote) return <p class="vote-told">{toldVote(info, info.vote.winner)}</p>;
  if (info.panes.length < 2 || (info.blind && info.revealed)) return null;
  return (
    <section class="vote" aria-label="Vote">
      <h2>{able.length ? "Which answer is best?" : "No pane completed, so none can win."}</h2>
      <div class="buttons">
        {able.map(({ pane, label, model }) => (
          <button key={pane} type="button" class="winner" onClick={() => comparison.vote(pane)}>
            <span class="pane-label">{label}</span>
            {model && able.length < 5 && <span class="wide-only">{model}</span>}
          </button>
        ))}
        {able.length > 1 && (
          <button type="button" onClick={() => comparison.vote("tie")}>
            A tie
          </button>
        )}
        <button type="button" onClick={() => comparison.vote("none")}>
          None is good
        </button>
        {isBlind(info) && (
          <button type="button" class="quiet" onClick={() => comparison.reveal()}>
            <Icon node={Eye} size={16} /> Reveal without a vote
          </button>
        )}
      </div>
    </section>
  );
}

function toldVote(info: Comparison, winner: Winner): string {
  if (winner === "tie") return "You called it a tie.";
  if (winner === "none") return "You found none good.";
  const { label, model } = info.panes[winner]!;
  return `You chose ${label}: ${model}.`;
}

/** Tells a screen reader that panes have ended, and how: never each word of them. */
function Announcer({ info, isRunning }: { info: Comparison; isRunning: boolean }) {
  const ended = info.panes.filter(({ status }) => status === "settled");
  const told = ended.map(({ label, settlement }) => `${label}: ${settlement?.outcome}`).join(", ");
  return (
    <div class="sr-only" role="status" aria-live="polite">
      {isRunning && !ended.length ? "The panes have begun." : told}
    </div>
  );
}
