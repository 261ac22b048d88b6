/** The words of what an agent asks, in each language. They come with the first question, not with the page. */
import { type Language, t } from ".";

const en = {
  allowTool: (tool: string) => `Allow ${tool}?`,
  allowCall: "Allow {} to run?",
  deny: "Deny",
  scrollToAllow: "Scroll to the end to allow it.",
  allowForChat: "Allow for this chat",
  allowOnce: "Allow once",
  allowForChatHint: (tool: string) => `Every call of ${tool} by this agent, in this chat only.`,
  allowBeginning: "Always allow commands that begin with {}",
  allowBeginningHint: "In all chats with this agent, if it is a single command. You can revoke this in Settings.",
  alwaysAllow: "Always allow",
  alwaysAllowHint: (tool: string) =>
    `Every call of ${tool} by this agent, whatever its arguments, in all chats. You can revoke this in Settings.`,
  denyReason: "Reason (optional)",
  mayHaveRun: (tool: string) => `The server ended while ${tool} was running. It may have run.`,
  interruptedAt: (when: string) => `Started ${when}. Check whether it had its effect, then say what happened.`,
  scrollToRun: "Scroll to the end to run it again.",
  itRan: "It ran",
  runAgain: "Run it again",
  skip: "Skip",
  edit: "Edit arguments",
  allowChanged: "Allow with changes",
  notJson: "This is not valid JSON.",
  asks: "{} asks:",
  ownWords: "In your own words",
  send: "Send answer",
  decline: "Decline",
  dismiss: "Dismiss",
};

export type QuestionWords = typeof en;

const de: QuestionWords = {
  allowTool: (tool) => `${tool} erlauben?`,
  allowCall: "{} ausführen lassen?",
  deny: "Ablehnen",
  scrollToAllow: "Zum Erlauben bis ans Ende scrollen.",
  allowForChat: "Für diesen Chat erlauben",
  allowOnce: "Einmal erlauben",
  allowForChatHint: (tool) => `Jeder Aufruf von ${tool} durch diesen Agenten, nur in diesem Chat.`,
  allowBeginning: "Befehle immer erlauben, die mit {} beginnen",
  allowBeginningHint:
    "In allen Chats mit diesem Agenten, wenn es ein einzelner Befehl ist. In den Einstellungen widerrufbar.",
  alwaysAllow: "Immer erlauben",
  alwaysAllowHint: (tool) =>
    `Jeder Aufruf von ${tool} durch diesen Agenten, mit beliebigen Argumenten, in allen Chats. In den Einstellungen widerrufbar.`,
  denyReason: "Grund (optional)",
  mayHaveRun: (tool) => `Der Server endete, während ${tool} lief. Der Aufruf hat vielleicht gewirkt.`,
  interruptedAt: (when) => `Begonnen ${when}. Prüfen Sie, ob er gewirkt hat, und sagen Sie, was geschehen ist.`,
  scrollToRun: "Zum erneuten Ausführen bis ans Ende scrollen.",
  itRan: "Er hat gewirkt",
  runAgain: "Noch einmal ausführen",
  skip: "Auslassen",
  edit: "Argumente bearbeiten",
  allowChanged: "Geändert erlauben",
  notJson: "Das ist kein gültiges JSON.",
  asks: "{} fragt:",
  ownWords: "Mit eigenen Worten",
  send: "Antwort senden",
  decline: "Ablehnen",
  dismiss: "Verwerfen",
};

const ar: QuestionWords = {
  allowTool: (tool) => `السماح بـ ${tool}؟`,
  allowCall: "السماح بتشغيل {}؟",
  deny: "رفض",
  scrollToAllow: "مرّر إلى النهاية كي تسمح به.",
  allowForChat: "السماح في هذه المحادثة",
  allowOnce: "السماح مرة واحدة",
  allowForChatHint: (tool) => `كل استدعاء للأداة ${tool} من هذا الوكيل، في هذه المحادثة فقط.`,
  allowBeginning: "السماح دائمًا بالأوامر التي تبدأ بـ {}",
  allowBeginningHint: "في كل المحادثات مع هذا الوكيل، إن كان أمرًا واحدًا. يمكن إلغاء ذلك من الإعدادات.",
  alwaysAllow: "السماح دائمًا",
  alwaysAllowHint: (tool) =>
    `كل استدعاء للأداة ${tool} من هذا الوكيل، مهما كانت وسائطه، في كل المحادثات. يمكن إلغاء ذلك من الإعدادات.`,
  denyReason: "السبب (اختياري)",
  mayHaveRun: (tool) => `توقّف الخادم أثناء تشغيل ${tool}. ربما نُفّذ الاستدعاء.`,
  interruptedAt: (when) => `بدأ ${when}. تحقّق مما إذا كان قد أثّر، ثم قل ما حدث.`,
  scrollToRun: "مرّر إلى النهاية كي تشغّله مرة أخرى.",
  itRan: "لقد نُفّذ",
  runAgain: "شغّله مرة أخرى",
  skip: "تخطّي",
  edit: "تعديل الوسائط",
  allowChanged: "السماح مع التعديلات",
  notJson: "هذا ليس JSON صالحًا.",
  asks: "{} تسأل:",
  ownWords: "بكلماتك",
  send: "إرسال الجواب",
  decline: "رفض",
  dismiss: "تجاهل",
};

const ALL: Record<Language, QuestionWords> = { en, de, ar };

/** The words, now. Who draws with them is drawn again when the language changes. */
export function q(): QuestionWords {
  t();
  return ALL[document.documentElement.lang as Language] ?? en;
}
