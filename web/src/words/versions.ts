/** The words of versions of messages, votes and voice, in each language. They come with what they belong to. */
import { type Language, t } from ".";
import { number } from "./count";

const en = {
  editResponse: "Edit response",
  editingResponse: "Editing response",
  responseText: "Response text",
  save: "Save",
  continueHere: "Continue from here",
  continueWith: "Continue from here with…",
  editHint: "Saving adds a version that is marked as edited. The model sees your text. The first response stays.",
  editStepHint: "This changes the text after the last tool call. Calls and results stay as they are.",
  good: "Good response",
  bad: "Bad response",
  unvote: "Remove vote",
  voted: "Vote saved.",
  sayWhy: "Say why",
  why: "Why? (optional)",
  deleteResponse: "Delete response",
  deleteMessage: "Delete message",
  deleted: "Removed from the chat.",
  undo: "Undo",
  readAloud: "Read aloud",
  stopReading: "Stop reading",
  code: "Code",
  formula: "formula",
  dictateTitle: "Dictate",
  dictateHow:
    "Your browser turns what you say into text. Some browsers send the sound to their maker for that. Holdfast gets only the text.",
  dictateStart: "Start dictating",
  dictateFailed: (why: string) => `Dictation ended: ${why}`,
  pictureOfAnswer: (n: number) => `Picture ${number(n)} of the response`,
  savePicture: (n: number) => `Save picture ${number(n)}`,
};

export type VersionWords = typeof en;

const de: VersionWords = {
  editResponse: "Antwort bearbeiten",
  editingResponse: "Antwort wird bearbeitet",
  responseText: "Text der Antwort",
  save: "Speichern",
  continueHere: "Ab hier fortsetzen",
  continueWith: "Ab hier fortsetzen mit …",
  editHint:
    "Gespeichert wird eine weitere Fassung, die als bearbeitet markiert ist. Das Modell sieht Ihren Text. Die erste Antwort bleibt.",
  editStepHint: "Dies ändert den Text nach dem letzten Werkzeugaufruf. Aufrufe und Ergebnisse bleiben, wie sie sind.",
  good: "Gute Antwort",
  bad: "Schlechte Antwort",
  unvote: "Bewertung entfernen",
  voted: "Bewertung gespeichert.",
  sayWhy: "Begründen",
  why: "Warum? (freiwillig)",
  deleteResponse: "Antwort löschen",
  deleteMessage: "Nachricht löschen",
  deleted: "Aus dem Chat entfernt.",
  undo: "Rückgängig",
  readAloud: "Vorlesen",
  stopReading: "Vorlesen beenden",
  code: "Code",
  formula: "Formel",
  dictateTitle: "Diktieren",
  dictateHow:
    "Ihr Browser macht aus Sprache Text. Manche Browser senden den Ton dafür an ihren Hersteller. Holdfast erhält nur den Text.",
  dictateStart: "Diktat starten",
  dictateFailed: (why) => `Das Diktat wurde beendet: ${why}`,
  pictureOfAnswer: (n) => `Bild ${number(n)} der Antwort`,
  savePicture: (n) => `Bild ${number(n)} speichern`,
};

const ar: VersionWords = {
  editResponse: "تعديل الرد",
  editingResponse: "تعديل الرد جارٍ",
  responseText: "نص الرد",
  save: "حفظ",
  continueHere: "المتابعة من هنا",
  continueWith: "المتابعة من هنا بواسطة…",
  editHint: "يضيف الحفظ نسخة معلَّمة بأنها معدَّلة. يرى النموذج نصك، ويبقى الرد الأول كما هو.",
  editStepHint: "يغيّر هذا النص الذي يلي آخر استدعاء لأداة. تبقى الاستدعاءات ونتائجها كما هي.",
  good: "رد جيد",
  bad: "رد سيئ",
  unvote: "إزالة التقييم",
  voted: "حُفظ التقييم.",
  sayWhy: "ذكر السبب",
  why: "لماذا؟ (اختياري)",
  deleteResponse: "حذف الرد",
  deleteMessage: "حذف الرسالة",
  deleted: "أُزيل من المحادثة.",
  undo: "تراجع",
  readAloud: "قراءة بصوت عالٍ",
  stopReading: "إيقاف القراءة",
  code: "شيفرة",
  formula: "معادلة",
  dictateTitle: "إملاء صوتي",
  dictateHow: "يحوّل متصفحك كلامك إلى نص. ترسل بعض المتصفحات الصوت إلى صانعها لذلك. لا يتلقى Holdfast إلا النص.",
  dictateStart: "بدء الإملاء",
  dictateFailed: (why) => `انتهى الإملاء: ${why}`,
  pictureOfAnswer: (n) => `الصورة ${number(n)} من الرد`,
  savePicture: (n) => `حفظ الصورة ${number(n)}`,
};

const ALL: Record<Language, VersionWords> = { en, de, ar };

/** The words, now. Who draws with them is drawn again when the language changes. */
export function v(): VersionWords {
  t();
  return ALL[document.documentElement.lang as Language] ?? en;
}
