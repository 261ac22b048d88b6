/** The words of agents' files, in each language. They come with the dialog, not with the page. */
import { type Language, t } from ".";
import { count } from "./count";

const en = {
  title: (agent: string) => `Files of ${agent}`,
  folders: "Folders",
  top: "All files",
  none: "No files here.",
  noFile: "neither a file nor a folder",
  more: (n: number) => count(n, { one: "# more is not listed.", other: "# more are not listed." }),
};

type WorkspaceWords = typeof en;

const de: WorkspaceWords = {
  title: (agent) => `Dateien von ${agent}`,
  folders: "Ordner",
  top: "Alle Dateien",
  none: "Hier sind keine Dateien.",
  noFile: "weder Datei noch Ordner",
  more: (n) => count(n, { one: "# weitere ist nicht aufgeführt.", other: "# weitere sind nicht aufgeführt." }),
};

const ar: WorkspaceWords = {
  title: (agent) => `ملفات ${agent}`,
  folders: "المجلدات",
  top: "كل الملفات",
  none: "لا ملفات هنا.",
  noFile: "ليس ملفًا ولا مجلدًا",
  more: (n) => count(n, { other: "# أخرى غير مدرجة." }),
};

const ALL: Record<Language, WorkspaceWords> = { en, de, ar };

/** The words, now. Who draws with them is drawn again when the language changes. */
export function w(): WorkspaceWords {
  t();
  return ALL[document.documentElement.lang as Language] ?? en;
}
