/** Reads a text aloud with a voice of the browser: of this machine, if it has one for the language. */
import { signal } from "@preact/signals";
import type { Token, Tokens } from "marked";
import { Blocks } from "../markdown/blocks";
import { decodeEntities } from "../markdown/entities";
import { v } from "../words/versions";

export const canRead = () => "speechSynthesis" in window;
/** The message that is being read. */
export const reading = signal<string | null>(null);

/** Some voices stop after a quarter of a minute, so a text is read in sentences. */
const SENTENCES = /[^.!?…。！？؟\n]+[.!?…。！？؟\n]*\s*/g;

export function readAloud(id: string, text: string): void {
  stopReading();
  const said = spoken(text);
  if (!said.length) return;
  const voice = ownVoice();
  reading.value = id;
  said.forEach((sentence, index) => {
    const utterance = new SpeechSynthesisUtterance(sentence);
    if (voice) utterance.voice = voice;
    utterance.onend = utterance.onerror = () => {
      if (index === said.length - 1 && reading.value === id) reading.value = null;
    };
    speechSynthesis.speak(utterance);
  });
}

export function stopReading(): void {
  reading.value = null;
  speechSynthesis.cancel();
}

/** What is read of a text: what is drawn of it, with a word in place of code and of a formula. */
export function spoken(text: string): string[] {
  const said = within(new Blocks().finish(text));
  return (said.match(SENTENCES) ?? []).map((sentence) => sentence.trim()).filter(Boolean);
}

function within(tokens: readonly Token[] | undefined): string {
  return tokens?.map(said).join("") ?? "";
}

function said(token: Token): string {
  switch (token.type) {
    case "code":
      return `${v().code}.\n`;
    case "mathBlock":
      return `${v().formula}.\n`;
    case "math":
      return v().formula;
    case "list":
      return `\n${within(token.items)}`;
    case "table":
      return [token.header, ...token.rows].map(saidOfRow).join("");
    case "paragraph":
    case "heading":
    case "blockquote":
    case "list_item":
    case "footnote":
      return `${within(token.tokens)}\n`;
    case "strong":
    case "em":
    case "del":
    case "link":
      return within(token.tokens);
    case "text":
      return token.tokens ? within(token.tokens) : decodeEntities(token.text);
    case "codespan":
    case "escape":
    case "image":
      return token.text;
    default:
      return " ";
  }
}

const saidOfRow = (row: Tokens.TableCell[]) => `${row.map(({ tokens }) => within(tokens)).join(", ")}\n`;

/** A voice of this machine for the page's language: then no text leaves it. Without one the browser chooses. */
function ownVoice(): SpeechSynthesisVoice | undefined {
  const { lang } = document.documentElement;
  return speechSynthesis.getVoices().find((voice) => voice.localService && voice.lang.startsWith(lang));
}
