/** The words of folders, tags and the archive, in each language. They come with what they belong to, not with the page. */
import { type Language, t } from ".";
import { number } from "./count";

const en = {
  organize: "Organize…",
  organizeChats: (n: number) => (n === 1 ? "Organize chat" : `Organize ${number(n)} chats`),
  folder: "Folder",
  noFolder: "No folder",
  newFolder: "New folder…",
  folderName: "Name of the folder",
  different: "In different folders",
  tags: "Tags",
  newTags: "New tags",
  newTagsHint: "work, ideas",
  archive: "Archive",
  unarchive: "Take out of the archive",
  archiveOf: (n: string) => `Archive (${n})`,
  saved: "Saved.",
  moved: (n: number, folder: string) => (n === 1 ? `Moved to “${folder}”` : `${number(n)} chats moved to “${folder}”`),
  archivedNow: (n: number) =>
    n === 1 ? "Chat archived. Search still finds it." : `${number(n)} chats archived. Search still finds them.`,
  unarchived: (n: number) => (n === 1 ? "Chat is out of the archive." : `${number(n)} chats are out of the archive.`),
  renameFolder: "Rename folder",
  removeFolder: "Remove folder",
  removeFolderWhy: "Its chats stay, and are in the list again.",
  selectMore: "Select several",
  chosenChats: "Selected chats",
  selected: (n: number) => `${number(n)} selected`,
  select: (title: string) => `Select ${title}`,
  selectAll: "Select all",
  stopSelecting: "Stop selecting",
  exportChats: "Export as Markdown",
  deletedChats: (n: number) => (n === 1 ? "Deleted 1 chat." : `Deleted ${number(n)} chats.`),
  willStop: (n: number) =>
    n === 1
      ? "A response in them is running and will be stopped."
      : `${number(n)} responses in them are running and will be stopped.`,
};

export type FilingWords = typeof en;

const de: FilingWords = {
  organize: "Ordnen…",
  organizeChats: (n) => (n === 1 ? "Chat ordnen" : `${number(n)} Chats ordnen`),
  folder: "Ordner",
  noFolder: "Kein Ordner",
  newFolder: "Neuer Ordner…",
  folderName: "Name des Ordners",
  different: "In verschiedenen Ordnern",
  tags: "Schlagwörter",
  newTags: "Neue Schlagwörter",
  newTagsHint: "Arbeit, Ideen",
  archive: "Archivieren",
  unarchive: "Aus dem Archiv holen",
  archiveOf: (n) => `Archiv (${n})`,
  saved: "Gespeichert.",
  moved: (n, folder) => (n === 1 ? `Nach „${folder}“ verschoben` : `${number(n)} Chats nach „${folder}“ verschoben`),
  archivedNow: (n) =>
    n === 1
      ? "Chat archiviert. Die Suche findet ihn weiterhin."
      : `${number(n)} Chats archiviert. Die Suche findet sie weiterhin.`,
  unarchived: (n) => (n === 1 ? "Der Chat ist nicht mehr im Archiv." : `${number(n)} Chats sind nicht mehr im Archiv.`),
  renameFolder: "Ordner umbenennen",
  removeFolder: "Ordner entfernen",
  removeFolderWhy: "Seine Chats bleiben und stehen wieder in der Liste.",
  selectMore: "Mehrere auswählen",
  chosenChats: "Ausgewählte Chats",
  selected: (n) => `${number(n)} ausgewählt`,
  select: (title) => `${title} auswählen`,
  selectAll: "Alle auswählen",
  stopSelecting: "Auswahl beenden",
  exportChats: "Als Markdown exportieren",
  deletedChats: (n) => (n === 1 ? "1 Chat gelöscht." : `${number(n)} Chats gelöscht.`),
  willStop: (n) =>
    n === 1 ? "Eine laufende Antwort darin wird gestoppt." : `${number(n)} laufende Antworten darin werden gestoppt.`,
};

const ar: FilingWords = {
  organize: "تنظيم…",
  organizeChats: (n) => (n === 1 ? "تنظيم المحادثة" : `تنظيم المحادثات (${number(n)})`),
  folder: "المجلد",
  noFolder: "بلا مجلد",
  newFolder: "مجلد جديد…",
  folderName: "اسم المجلد",
  different: "في مجلدات مختلفة",
  tags: "الوسوم",
  newTags: "وسوم جديدة",
  newTagsHint: "عمل, أفكار",
  archive: "أرشفة",
  unarchive: "إخراج من الأرشيف",
  archiveOf: (n) => `الأرشيف (${n})`,
  saved: "تم الحفظ.",
  moved: (n, folder) => (n === 1 ? `نُقلت إلى «${folder}»` : `نُقلت المحادثات (${number(n)}) إلى «${folder}»`),
  archivedNow: (n) =>
    n === 1 ? "أُرشفت المحادثة. ما زال البحث يجدها." : `أُرشفت المحادثات (${number(n)}). ما زال البحث يجدها.`,
  unarchived: (n) => (n === 1 ? "خرجت المحادثة من الأرشيف." : `خرجت المحادثات (${number(n)}) من الأرشيف.`),
  renameFolder: "إعادة تسمية المجلد",
  removeFolder: "إزالة المجلد",
  removeFolderWhy: "تبقى محادثاته، وتعود إلى القائمة.",
  selectMore: "تحديد عدة محادثات",
  chosenChats: "المحادثات المحددة",
  selected: (n) => `المحدد: ${number(n)}`,
  select: (title) => `تحديد ${title}`,
  selectAll: "تحديد الكل",
  stopSelecting: "إنهاء التحديد",
  exportChats: "تصدير بصيغة Markdown",
  deletedChats: (n) => (n === 1 ? "حُذفت محادثة واحدة." : `حُذفت المحادثات (${number(n)}).`),
  willStop: (n) => (n === 1 ? "سيتوقف رد جارٍ فيها." : `ستتوقف الردود الجارية فيها (${number(n)}).`),
};

const ALL: Record<Language, FilingWords> = { en, de, ar };

/** The words, now. Who draws with them is drawn again when the language changes. */
export function f(): FilingWords {
  t();
  return ALL[document.documentElement.lang as Language] ?? en;
}
