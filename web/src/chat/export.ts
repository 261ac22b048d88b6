/** A session as a file. It is made here, and goes nowhere but to the reader's disk. */
import { api } from "../api";
import { picturesOf } from "../files/attached";
import { complain, toast } from "../state/toasts";
import type { OpenSession } from "../types";
import { copyText } from "../ui/copy";
import { t } from "../words";
import { modelsOf } from "./figures";
import { tellOutcome } from "./outcome";
import { joinedText, type Shown, shownOf } from "./responses";

export async function copyMarkdown(id: string): Promise<void> {
  try {
    await copyText(asMarkdown(await api.session(id)));
    toast(t().copied);
  } catch (error) {
    complain(error);
  }
}

export async function exportAs(id: string, kind: "markdown" | "json"): Promise<void> {
  try {
    const session = await (kind === "json" ? api.wholeSession(id) : api.session(id));
    const name =
      (session.title || "session")
        .replace(/[^\p{L}\p{N} _-]+/gu, "")
        .slice(0, 60)
        .trim() || "session";
    if (kind === "json") save(`${name}.json`, JSON.stringify(session, null, 2), "application/json");
    else save(`${name}.md`, asMarkdown(session), "text/markdown");
  } catch (error) {
    complain(error);
  }
}

/** Several sessions, one after another, as one Markdown file. */
export async function exportAll(ids: string[]): Promise<void> {
  try {
    const texts: string[] = [];
    for (const id of ids) texts.push(asMarkdown(await api.session(id)));
    save("chats.md", texts.join("\n---\n\n"), "text/markdown");
  } catch (error) {
    complain(error);
  }
}

export function asMarkdown(session: OpenSession): string {
  const head = [`# ${session.title || t().untitled}`, ...(session.system ? [quoted(session.system)] : [])];
  return `${[...head, ...shownOf(session.messages).map(told)].join("\n\n")}\n`;
}

function told({ message, earlier }: Shown): string {
  const who = message.role === "user" ? t().you : modelsOf([...earlier, message]).join(", ") || message.role;
  const ending = tellOutcome(message.outcome, null);
  const pictures = [...earlier, message].flatMap(({ content }) => picturesOf(content));
  const marks = [
    ...pictures.map(() => t().imageAlt),
    message.edited ? t().editedByPerson : "",
    ending?.label ?? "",
  ].filter(Boolean);
  return [`## ${who}`, joinedText([...earlier, message]), ...marks.map((mark) => `*${mark}.*`)].join("\n\n");
}

function quoted(text: string): string {
  return text.replace(/^/gm, "> ");
}

function save(name: string, text: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
}
