/** The words of imports, in each language. They come with what they belong to, not with the page. */
import { type Language, t } from ".";
import { number } from "./count";

const en = {
  title: "Import chats",
  note: "From ChatGPT, Open WebUI, LibreChat or Holdfast: choose the ZIP or JSON file that you have exported there. Importing it again adds nothing twice.",
  choose: "Choose a file…",
  exportAll: "Export all chats",
  reading: "Reading the file…",
  progress: (found: string, added: string) => `${found} chats read, ${added} added…`,
  found: (n: number) => (n === 1 ? "1 chat found" : `${number(n)} chats found`),
  added: (n: number) => `${number(n)} added`,
  known: (n: number) => `${number(n)} already here`,
  empty: (n: number) => `${number(n)} without a message`,
  refused: (n: number) => `${number(n)} could not be imported`,
  leftOut: (n: number) => `${number(n)} parts left out: tool calls, generated images, or files that the export lacks`,
  why: "Why",
  untitled: "Untitled",
};

export type ImportWords = typeof en;

const de: ImportWords = {
  title: "Chats importieren",
  note: "Aus ChatGPT, Open WebUI, LibreChat oder Holdfast: Wählen Sie die ZIP- oder JSON-Datei, die Sie dort exportiert haben. Ein zweiter Import fügt nichts doppelt hinzu.",
  choose: "Datei auswählen…",
  exportAll: "Alle Chats exportieren",
  reading: "Datei wird gelesen…",
  progress: (found, added) => `${found} Chats gelesen, ${added} hinzugefügt…`,
  found: (n) => (n === 1 ? "1 Chat gefunden" : `${number(n)} Chats gefunden`),
  added: (n) => `${number(n)} hinzugefügt`,
  known: (n) => `${number(n)} schon vorhanden`,
  empty: (n) => `${number(n)} ohne Nachricht`,
  refused: (n) => `${number(n)} nicht importiert`,
  leftOut: (n) => `${number(n)} Teile ausgelassen: Tool-Aufrufe, erzeugte Bilder oder Dateien, die im Export fehlen`,
  why: "Gründe",
  untitled: "Ohne Titel",
};

const ar: ImportWords = {
  title: "استيراد المحادثات",
  note: "من ChatGPT أو Open WebUI أو LibreChat أو Holdfast: اختر ملف ZIP أو JSON الذي صدّرته هناك. لا يضيف الاستيراد مرة أخرى شيئًا مرتين.",
  choose: "اختيار ملف…",
  exportAll: "تصدير كل المحادثات",
  reading: "تجري قراءة الملف…",
  progress: (found, added) => `قُرئت المحادثات: ${found}، وأُضيفت: ${added}…`,
  found: (n) => `المحادثات في الملف: ${number(n)}`,
  added: (n) => `أُضيفت: ${number(n)}`,
  known: (n) => `موجودة من قبل: ${number(n)}`,
  empty: (n) => `بلا رسائل: ${number(n)}`,
  refused: (n) => `تعذّر استيرادها: ${number(n)}`,
  leftOut: (n) => `أجزاء تُركت: ${number(n)} (استدعاءات أدوات أو صور مولّدة أو ملفات ليست في التصدير)`,
  why: "الأسباب",
  untitled: "بلا عنوان",
};

const ALL: Record<Language, ImportWords> = { en, de, ar };

/** The words, now. Who draws with them is drawn again when the language changes. */
export function i(): ImportWords {
  t();
  return ALL[document.documentElement.lang as Language] ?? en;
}
