/** Reads a text aloud with a voice of the browser: of this machine, if it has one for the language. */
import { signal } from "@preact/signals";
import { withoutMarks } from "../markdown/plain";

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

/** What is read of a text: without the marks of Markdown, and without blocks of code. */
export function spoken(text: string): string[] {
  const lines = text.replace(/^(```|~~~)[^\n]*\n[\s\S]*?(?:^\1[ \t]*$|$(?![\s\S]))/gm, "").split("\n");
  const plain = lines.map((line) => withoutMarks(line, true).trim()).join("\n");
  return (plain.match(SENTENCES) ?? []).map((sentence) => sentence.trim()).filter(Boolean);
}

/** A voice of this machine for the page's language: then no text leaves it. Without one the browser chooses. */
function ownVoice(): SpeechSynthesisVoice | undefined {
  const { lang } = document.documentElement;
  return speechSynthesis.getVoices().find((voice) => voice.localService && voice.lang.startsWith(lang));
}
