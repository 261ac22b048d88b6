/** What goes with the message that is being written: thumbnails of pictures, and chips of files. */

import { Eye, FileText, Paperclip, TextCursorInput, X } from "lucide";
import type { Model } from "../types";
import { useElement } from "../ui/element";
import { Icon } from "../ui/icon";
import { Picture } from "../ui/picture";
import { t } from "../words";
import { type Attached, canBeSeen, fileOf, isSeen, pictureOf, readOtherwise, tokensOf } from "./attached";
import type { Attaching, Coming } from "./attaching";

interface AttachmentsProps {
  attaching: Attaching;
  session?: string | null;
  /** The model that is asked, if it is one. */
  model?: Model | null;
  /** Puts a text that was pasted back into the box. */
  onText?: (text: string) => void;
}

export function Attachments({ attaching, session = null, model = null, onText }: AttachmentsProps) {
  const { all, coming, set, isDropping } = attaching;
  return (
    <>
      {isDropping && <p class="drop-here">{t().dropFiles}</p>}
      {(all.length > 0 || coming.length > 0) && (
        <ul class="attached" aria-label={t().attachments}>
          {all.map((each, index) => (
            <Chip
              key={index}
              attached={each}
              n={index + 1}
              session={session}
              onRemove={() => set(all.toSpliced(index, 1))}
              onLook={
                canBeSeen(each) && model?.sees !== false ? () => set(all.with(index, readOtherwise(each))) : undefined
              }
              onText={
                each.pasted !== null && onText
                  ? () => {
                      set(all.toSpliced(index, 1));
                      onText(each.pasted ?? "");
                    }
                  : undefined
              }
            />
          ))}
          {coming.map((each) => (
            <OnItsWay key={each.key} coming={each} />
          ))}
        </ul>
      )}
      <Warning all={all} model={model} />
    </>
  );
}

interface ChipProps {
  attached: Attached;
  n: number;
  session: string | null;
  onRemove: () => void;
  onText: (() => void) | undefined;
  /** Lets the model look at the pages of a PDF, or read their text again. */
  onLook: (() => void) | undefined;
}

function Chip({ attached, n, session, onRemove, onText, onLook }: ChipProps) {
  const { part, facts } = attached;
  const [file, url] = [fileOf(part), pictureOf(part)];
  const name = file?.name || t().attachment(n);
  return (
    <li class={file ? "file-chip" : "thumbnail"}>
      {file ? (
        <>
          <Icon node={FileText} />
          <span class="file-name">
            <bdi>{name}</bdi>
            {facts && <small>{t().fileFacts(facts.size, facts.pages, tokensOf(attached))}</small>}
          </span>
        </>
      ) : (
        <Picture session={session} url={url} alt={name} />
      )}
      {onLook && (
        <button
          type="button"
          class="quiet icon-button"
          title={t().asPictures}
          aria-label={t().asPictures}
          aria-pressed={isSeen(attached)}
          onClick={onLook}
        >
          <Icon node={Eye} size={16} />
        </button>
      )}
      {onText && (
        <button
          type="button"
          class="quiet icon-button"
          title={t().insertAsText}
          aria-label={t().insertAsText}
          onClick={onText}
        >
          <Icon node={TextCursorInput} size={16} />
        </button>
      )}
      <button
        type="button"
        class="icon-button remove"
        aria-label={file ? t().removeFile(name) : t().removeAttachment(n)}
        onClick={onRemove}
      >
        <Icon node={X} size={14} />
      </button>
    </li>
  );
}

function OnItsWay({ coming: { name, progress, abort } }: { coming: Coming }) {
  return (
    <li class="file-chip is-coming">
      <span class="file-name">
        <bdi>{name}</bdi>
        <progress
          aria-label={t().uploading(name)}
          max={1}
          {...(progress !== null && progress < 1 && { value: progress })}
        />
      </span>
      <button type="button" class="icon-button remove" aria-label={t().removeFile(name)} onClick={abort}>
        <Icon node={X} size={14} />
      </button>
    </li>
  );
}

/** What the chosen model cannot take is said before it is sent. */
function Warning({ all, model }: { all: Attached[]; model: Model | null }) {
  if (!model || !all.length) return null;
  const needsEyes =
    all.some(({ part, facts }) => (facts ? !facts.has_text : pictureOf(part) !== "")) || all.some(isSeen);
  const tokens = all.reduce((sum, each) => sum + (tokensOf(each) ?? 0), 0);
  const why =
    needsEyes && model.sees === false
      ? t().modelSeesNothing(model.name)
      : model.window !== null && tokens > model.window
        ? t().filesTooLong(tokens, model.name, model.window)
        : "";
  return (
    <p class="attached-warning" role="status">
      {why}
    </p>
  );
}

export function AddFile({ attaching }: { attaching: Attaching }) {
  const input = useElement<HTMLInputElement>();
  return (
    <>
      <button
        type="button"
        class="quiet icon-button"
        aria-label={t().attachFile}
        title={t().attachFileHint}
        onClick={() => input.current.click()}
      >
        <Icon node={Paperclip} />
      </button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        onChange={(event) => {
          attaching.take([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}
