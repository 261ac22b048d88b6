/** Where one says something. While an answer is going on it can wait in a queue, or take the answer's place. */

import { ArrowUp, CornerDownLeft, Square } from "lucide";
import type { TargetedWheelEvent } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { IfBusy } from "../api";
import { ContextGauge } from "../context/gauge";
import { compact, isFull } from "../context/state";
import { useAttaching } from "../files/attaching";
import { AddFile, Attachments } from "../files/attachments";
import { current, modelToAsk, sendMessage, steerRun, stopCurrent } from "../state/current";
import { giveBack, keepDraft, moveDraft, noteTaken, readDraft, returned } from "../state/drafts";
import { type WhileRunning, whileRunning } from "../state/preferences";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { Later } from "../ui/later";
import { lazily } from "../ui/lazily";
import { Dictate } from "../voice/dictate";
import { t } from "../words";
import { contentOf } from "./content";
import { editing } from "./edit-message";
import { growWithText } from "./grow";
import { ModelPicker } from "./model-picker";

/** The height of a line, in pixels, for wheels that count in lines. */
const LINE = 20;
/** What calls a prompt: a slash and the beginning of its name, and nothing else. */
const PROMPT = /^\/[\p{L}\p{M}\p{N}_.-]*$/u;
/** Asks for a summary. */
const COMPACT = "/compact";
const PROMPT_LIST = () => import("../presets/prompt-list");

export function Composer() {
  const session = current.value?.id ?? null;
  const [text, setText] = useState(() => readDraft(session));
  const [refusal, setRefusal] = useState("");
  const attaching = useAttaching(() => !current.value?.isTemporary);
  const box = useElement<HTMLTextAreaElement>();
  const isRunning = current.value?.isRunning.value ?? false;
  const isAgent = current.value?.live.value?.isAgent.value ?? false;
  const maySteer = isAgent && attaching.all.length === 0;
  const usualWay = whileRunning.value === "steer" && !maySteer ? "queue" : whileRunning.value;
  const otherWay = usualWay === "interrupt" ? "queue" : "interrupt";
  const hasSomething = text.trim() !== "" || attaching.all.length > 0 || attaching.coming.length > 0;

  useLayoutEffect(() => {
    growWithText(box.current);
    if (!matchMedia("(pointer: coarse)").matches) box.current.focus();
  }, []);
  useEffect(() => growWithText(box.current), [text]);
  useEffect(() => {
    const back = returned.value;
    if (!back || back.session !== session) return;
    returned.value = null;
    setText(readDraft(session));
    attaching.set([...back.attached, ...attaching.all]);
    setRefusal(back.why);
  }, [returned.value]);

  const write = (value: string) => {
    setRefusal("");
    setText(value);
    keepDraft(session, value);
  };
  const send = async (ifBusy: IfBusy | "steer") => {
    if (!hasSomething) return;
    const chat = current.value;
    if (text.trim() === COMPACT && chat && !chat.isTemporary) {
      write("");
      await compact(chat);
      return;
    }
    if (PROMPT.test(text) && (await insertsPrompt())) return;
    const [said, before] = [text, current.value];
    setRefusal("");
    setText(""); // the draft stays until the server has taken it
    const shown = await attaching.whole(); // a message goes with the files that were attached before it was sent
    if (shown && !said.trim() && !shown.length) return noteTaken(session, said);
    if (!shown || current.value !== before) return giveBack(session, said, shown ?? []);
    const { isTaken, place, why } = await (ifBusy === "steer"
      ? steerRun(said.trim())
      : sendMessage(
          contentOf(
            said.trim(),
            shown.map(({ part }) => part),
          ),
          (await makesRoom(ifBusy)) ? "queue" : ifBusy,
        ));
    if (isTaken || place !== session) noteTaken(session, said);
    if (place !== session) moveDraft(session, place); // a session was made for it, and one may have gone on typing
    if (!isTaken) giveBack(place, said, shown, why); // what was not taken is not lost, also where a session was made for it
  };
  const insertsPrompt = async () => {
    const typed = await lazily(() => import("../presets/typed")).catch(() => null);
    return (await typed?.takeTyped(text, write)) ?? false;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey && !isPhone()) {
      event.preventDefault();
      send(!isRunning ? "reject" : event.metaKey || event.ctrlKey ? otherWay : usualWay);
    } else if (event.key === "ArrowUp" && text === "") {
      const last = current.value?.messages.value.findLast(({ role }) => role === "user");
      if (last) {
        event.preventDefault();
        editing.value = last.id;
      }
    }
  };

  return (
    <>
      {PROMPT.test(text) && <Later load={PROMPT_LIST} box={box} text={text} onInsert={write} />}
      <form
        class="composer"
        onWheel={scrollChat}
        onSubmit={(event) => {
          event.preventDefault();
          send(isRunning ? usualWay : "reject");
        }}
      >
        <p class="refusal" role="alert">
          {refusal}
        </p>
        <div class="box">
          <Attachments
            attaching={attaching}
            session={session}
            model={modelToAsk.value}
            onText={(pasted) => write(text ? `${text}\n${pasted}` : pasted)}
          />
          <textarea
            id="composer"
            ref={box}
            dir={text ? "auto" : undefined} // empty, it goes as the page does
            rows={1}
            placeholder={isRunning ? t().addFollowUp : t().sendMessage}
            aria-label={t().yourMessage}
            autocomplete={current.value?.isTemporary ? "off" : undefined} // else browsers store it to restore the tab
            value={text}
            onInput={(event) => write(event.currentTarget.value)}
            onKeyDown={onKeyDown}
            onPaste={attaching.onPaste}
          />
          <div class="tools-line">
            <AddFile attaching={attaching} />
            <ModelPicker />
            <ContextGauge />
            <span class="space" />
            <Dictate onText={(said) => write([text.trimEnd(), said].filter(Boolean).join(" "))} />
            {isRunning && hasSomething && <Ways usual={usualWay} maySteer={maySteer} onSend={send} />}
            {isRunning ? (
              <button type="button" class="round stop" aria-label={t().stop} title={t().stopHint} onClick={stopCurrent}>
                <Icon node={Square} size={14} />
              </button>
            ) : (
              <button
                type="submit"
                class="round primary"
                aria-label={t().send}
                title={t().send}
                disabled={!hasSomething}
              >
                <Icon node={ArrowUp} />
              </button>
            )}
          </div>
        </div>
      </form>
    </>
  );
}

interface WaysProps {
  /** The one that Enter takes. */
  usual: WhileRunning;
  maySteer: boolean;
  onSend: (way: WhileRunning) => void;
}

/** What can be done with a message while a response is running. */
function Ways({ usual, maySteer, onSend }: WaysProps) {
  const others = (["steer", "interrupt", "queue"] as const).filter((way) => way !== usual);
  const hints = { steer: t().steerHint, interrupt: t().interruptHint, queue: t().queueHint };
  return [...others.filter((way) => way !== "steer" || maySteer), usual].map((way) => (
    <button type="button" key={way} class="small" title={hints[way]} onClick={() => onSend(way)}>
      {way === usual && <Icon node={CornerDownLeft} size={14} />} {t()[way]}
    </button>
  ));
}

/** Summarise a chat that fills its model's window before the next message: whether that is being done. */
async function makesRoom(ifBusy: IfBusy): Promise<boolean> {
  const chat = current.value;
  return ifBusy === "reject" && chat !== null && !chat.isTemporary && isFull() && (await compact(chat));
}

/** The wheel over the message box scrolls the chat, unless something under the pointer scrolls by itself. */
function scrollChat(event: TargetedWheelEvent<HTMLFormElement>): void {
  if (event.ctrlKey) return; // it zooms
  for (let at = event.target as Element; at !== event.currentTarget && at.parentElement; at = at.parentElement)
    if (at.matches("[popover], dialog") || scrolls(at)) return;
  const pixels = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
  document.querySelector(".transcript")?.scrollBy(0, event.deltaY * pixels);
}

function scrolls(element: Element): boolean {
  return element.scrollHeight > element.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(element).overflowY);
}

/** On a phone the return key makes a new line, as everywhere there; the button sends. */
function isPhone(): boolean {
  return matchMedia("(pointer: coarse) and (max-width: 50rem)").matches;
}
