/** Where one says something. While an answer is going on it can wait in a queue, or take the answer's place. */
import { ArrowUp, CornerDownLeft, CornerDownRight, ImagePlus, Square, X } from "lucide";
import { useEffect, useRef, useState } from "preact/hooks";
import type { IfBusy } from "../api";
import { current, sendMessage, steerRun, stopCurrent } from "../state/current";
import { giveBack, keepDraft, readDraft, returned } from "../state/drafts";
import { toast } from "../state/toasts";
import { Icon } from "../ui/icon";
import { contentOf } from "./content";
import { growWithText } from "./grow";
import { ModelPicker } from "./model-picker";
import { editing } from "./user-message";

const LARGEST_PICTURE = 6_000_000;
const PICTURES = /^image\/(?:png|jpeg|gif|webp)$/;

export function Composer() {
  const session = current.value?.id ?? null;
  const [text, setText] = useState(() => readDraft(session));
  const [pictures, setPictures] = useState<string[]>([]);
  const [isDropping, setDropping] = useState(false);
  const box = useRef<HTMLTextAreaElement>(null);
  const isRunning = current.value?.isRunning.value ?? false;
  const isAgent = current.value?.live.value?.isAgent.value ?? false;
  const hasSomething = text.trim() !== "" || pictures.length > 0;

  useEffect(() => {
    growWithText(box.current!);
    if (!matchMedia("(pointer: coarse)").matches) box.current!.focus();
  }, []);
  useEffect(() => growWithText(box.current!), [text]);
  useEffect(() => {
    const back = returned.value;
    if (!back || back.session !== session) return;
    returned.value = null;
    write(text && text !== back.text ? `${back.text}\n${text}` : back.text);
    setPictures((before) => [...back.pictures, ...before]);
  }, [returned.value]);

  const write = (value: string) => {
    setText(value);
    keepDraft(session, value);
  };
  const send = async (ifBusy: IfBusy | "steer") => {
    if (!hasSomething) return;
    const [said, shown] = [text, pictures];
    write("");
    setPictures([]);
    const { isTaken, place } =
      ifBusy === "steer" ? await steerRun(said.trim()) : await sendMessage(contentOf(said.trim(), shown), ifBusy);
    if (!isTaken) giveBack(place, said, shown); // what was not taken is not lost, also where a session was made for it
  };
  const take = async (files: Iterable<File>) => {
    for (const file of files) {
      if (!PICTURES.test(file.type)) toast("Only PNG, JPEG, GIF and WebP pictures can be sent.", { kind: "bad" });
      else if (file.size > LARGEST_PICTURE) toast(`“${file.name}” is larger than 6 MB.`, { kind: "bad" });
      else {
        const url = await dataUrl(file);
        setPictures((before) => [...before, url]);
      }
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey && !isPhone()) {
      event.preventDefault();
      send(!isRunning ? "reject" : event.metaKey || event.ctrlKey ? "interrupt" : "queue");
    } else if (event.key === "ArrowUp" && text === "") {
      const last = current.value?.messages.value.findLast(({ role }) => role === "user");
      if (last) {
        event.preventDefault();
        editing.value = last.id;
      }
    }
  };

  return (
    <form
      class={`composer ${isDropping ? "is-dropping" : ""}`}
      onSubmit={(event) => {
        event.preventDefault();
        send(isRunning ? "queue" : "reject");
      }}
      onDragOver={(event) => {
        event.preventDefault();
        setDropping(true);
      }}
      onDragLeave={() => setDropping(false)}
      onDrop={(event) => {
        event.preventDefault();
        setDropping(false);
        take(event.dataTransfer?.files ?? []);
      }}
    >
      <div class="box">
        {pictures.length > 0 && (
          <div class="pictures">
            {pictures.map((url, index) => (
              <span key={index}>
                <img src={url} alt={`Attachment ${index + 1}`} />
                <button
                  type="button"
                  class="icon-button"
                  aria-label={`Remove attachment ${index + 1}`}
                  onClick={() => setPictures(pictures.toSpliced(index, 1))}
                >
                  <Icon node={X} size={14} />
                </button>
              </span>
            ))}
          </div>
        )}
        <textarea
          id="composer"
          ref={box}
          dir="auto"
          rows={1}
          placeholder={isRunning ? "Say what comes next" : "Say something"}
          aria-label="Your message"
          value={text}
          onInput={(event) => write(event.currentTarget.value)}
          onKeyDown={onKeyDown}
          onPaste={(event) => {
            const files = [...(event.clipboardData?.files ?? [])];
            if (files.length) {
              event.preventDefault();
              take(files);
            }
          }}
        />
        <div class="tools-line">
          <AddPicture onTake={take} />
          <ModelPicker />
          <span class="space" />
          {isRunning && hasSomething && (
            <>
              {isAgent && pictures.length === 0 && (
                <button
                  type="button"
                  class="small"
                  title="Tell the agent this while it works: its model sees it before its next thought"
                  onClick={() => send("steer")}
                >
                  <Icon node={CornerDownRight} size={14} /> Steer
                </button>
              )}
              <button
                type="button"
                class="small"
                title="Stop the answer and send this instead"
                onClick={() => send("interrupt")}
              >
                Interrupt
              </button>
              <button type="submit" class="small" title="Send this when the answer is done">
                <Icon node={CornerDownLeft} size={14} /> Queue
              </button>
            </>
          )}
          {isRunning ? (
            <button type="button" class="round stop" aria-label="Stop" title="Stop (Esc)" onClick={stopCurrent}>
              <Icon node={Square} size={14} />
            </button>
          ) : (
            <button type="submit" class="round primary" aria-label="Send" title="Send" disabled={!hasSomething}>
              <Icon node={ArrowUp} />
            </button>
          )}
        </div>
      </div>
    </form>
  );
}

function AddPicture({ onTake }: { onTake: (files: Iterable<File>) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <button
        type="button"
        class="quiet icon-button"
        aria-label="Add a picture"
        title="Add a picture (or paste, or drop)"
        onClick={() => input.current!.click()}
      >
        <Icon node={ImagePlus} />
      </button>
      <input
        ref={input}
        type="file"
        accept="image/png,image/jpeg,image/gif,image/webp"
        multiple
        hidden
        onChange={(event) => {
          onTake([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}

/** On a phone the return key makes a new line, as everywhere there; the button sends. */
function isPhone(): boolean {
  return matchMedia("(pointer: coarse) and (max-width: 50rem)").matches;
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
