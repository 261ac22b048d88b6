/** The items of a message's menu. */
import type { ReadonlySignal } from "@preact/signals";
import { Check, Pencil, ThumbsDown, ThumbsUp, Trash2, Volume2, VolumeX } from "lucide";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { editing } from "../chat/edit-message";
import { joinedText } from "../chat/responses";
import { act, current, showBranch } from "../state/current";
import { complain, toast } from "../state/toasts";
import type { Message } from "../types";
import { MenuItem } from "../ui/menu";
import { canRead, readAloud, reading, stopReading } from "../voice/aloud";
import { v } from "../words/versions";
import { type Vote, versions } from "./calls";
import { loadThumbs, thumbOf, vote } from "./thumbs";

interface ItemsProps {
  message: Message;
  parts: readonly Message[];
  session: string;
  isBusy: ReadonlySignal<boolean>;
  askWhy: () => void;
}

export default function Items({ message, parts, session, isBusy, askWhy }: ItemsProps) {
  const isAnswer = message.role === "assistant";
  const isOwn = !current.value?.shared.value;
  useEffect(() => {
    if (isAnswer && isOwn) loadThumbs(session);
  }, [session]);
  useLayoutEffect(openAgain, []);
  const isRead = reading.value === message.id;
  return (
    <>
      {isAnswer && !isBusy.value && typeof message.content === "string" && (
        <MenuItem
          icon={Pencil}
          onClick={() => {
            editing.value = message.id;
          }}
        >
          {v().editResponse}
        </MenuItem>
      )}
      {isAnswer && message.model && isOwn && <Votes message={message.id} session={session} askWhy={askWhy} />}
      {isAnswer && canRead() && (
        <MenuItem
          icon={isRead ? VolumeX : Volume2}
          onClick={() => (isRead ? stopReading() : readAloud(message.id, joinedText(parts)))}
        >
          {isRead ? v().stopReading : v().readAloud}
        </MenuItem>
      )}
      {!isBusy.value && (
        <MenuItem icon={Trash2} kind="bad" onClick={() => remove(session, (parts[0] ?? message).id)}>
          {isAnswer ? v().deleteResponse : v().deleteMessage}
        </MenuItem>
      )}
    </>
  );
}

/** A menu that was opened before its items had come opens again with them: it had no size, and nothing for the focus. */
function openAgain(): void {
  const menu = document.querySelector<HTMLElement>(".menu:popover-open:not(:has(:focus))");
  menu?.hidePopover();
  menu?.showPopover();
}

function Votes({ message, session, askWhy }: Omit<ItemsProps, "message" | "parts" | "isBusy"> & { message: string }) {
  const chosen = thumbOf(message)?.vote;
  const choose = async (now: Vote) => {
    try {
      await vote(session, message, chosen === now ? null : now);
      if (chosen !== now) toast(v().voted, { action: { label: v().sayWhy, run: askWhy } });
    } catch (error) {
      complain(error);
    }
  };
  return (
    <>
      <MenuItem icon={chosen === "up" ? Check : ThumbsUp} onClick={() => choose("up")}>
        {chosen === "up" ? `${v().good}: ${v().unvote}` : v().good}
      </MenuItem>
      <MenuItem icon={chosen === "down" ? Check : ThumbsDown} onClick={() => choose("down")}>
        {chosen === "down" ? `${v().bad}: ${v().unvote}` : v().bad}
      </MenuItem>
    </>
  );
}

/** Show the chat without a message. It stands on the branch before, where the undo leads. */
const remove = (session: string, message: string) =>
  act(async (it) => {
    const { previous_head_id: before } = await versions.remove(session, message);
    await it.load();
    toast(v().deleted, {
      lasts: 8_000,
      ...(before && { action: { label: v().undo, run: () => showBranch(before) } }),
    });
    document.getElementById("composer")?.focus();
  });
