/** A button that copies a text, and says that it did. */
import { Check, Copy } from "lucide";
import { useState } from "preact/hooks";
import { complain } from "../state/toasts";
import { t } from "../words";
import { Icon } from "./icon";

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    try {
      await copyText(text);
      setDone(true);
      setTimeout(() => setDone(false), 1_500);
    } catch (error) {
      complain(error);
    }
  };
  return (
    <button
      type="button"
      class="quiet icon-button"
      onClick={copy}
      title={label}
      aria-label={isDone ? t().copied : label}
    >
      <Icon node={isDone ? Check : Copy} size={16} />
    </button>
  );
}

/** Copy a text, also over plain HTTP, where the clipboard's own interface is not offered. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  if (!isDone) throw new Error(t().notCopied);
}
