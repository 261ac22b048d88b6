/** The words of notifications, in each language. They come with what they belong to, not with the page. */
import { type Language, t } from ".";

const en = {
  notifications: "Notifications",
  notifyBlocked: "The browser blocks notifications for this page.",
  openOnPhone: "Open on phone",
  answerReady: "The response is ready",
  webhooks: "Webhooks",
  webhooksNote:
    "Call an address of your own at each end of your runs, and when one waits for you. The text is not sent.",
  webhookAddress: "Address",
  addWebhook: "Add webhook",
  remove: "Remove",
  removeWebhook: (url: string) => `Remove ${url}`,
  webhookMade: "Webhook added",
  webhookSecret: "Secret",
  webhookSecretNote: "Each call is signed with this secret, as Standard Webhooks says. It is shown only now.",
  inThisBrowser: "Notify me in this browser",
  onlyWhileOpen: "No push service can be used, so notifications come only while a page of Holdfast is open.",
  toldOf: "Notify me of",
  all: "Responses that are ready, failures and questions",
  needsYou: "Failures and questions only",
  none: "Nothing",
  asInSettings: "As in the settings",
  showsText: "Show the title of the chat and the beginning of the response",
  install: "Install as an app",
  phoneNote: "Scan the code with the phone's camera. The phone has to be signed in: the link alone gives no access.",
  phoneCode: "QR code of the link to this place in the chat",
  onlyThisMachine:
    "This address works on this machine only. Open Holdfast by an address that your phone can reach, then try again.",
};

export type NotificationWords = typeof en;

const de: NotificationWords = {
  notifications: "Benachrichtigungen",
  notifyBlocked: "Der Browser blockiert Benachrichtigungen für diese Seite.",
  openOnPhone: "Auf dem Telefon öffnen",
  answerReady: "Die Antwort ist fertig",
  webhooks: "Webhooks",
  webhooksNote:
    "Ruft eine eigene Adresse bei jedem Ende Ihrer Läufe, und wenn einer auf Sie wartet. Der Text wird nicht gesendet.",
  webhookAddress: "Adresse",
  addWebhook: "Webhook hinzufügen",
  remove: "Entfernen",
  removeWebhook: (url) => `${url} entfernen`,
  webhookMade: "Webhook hinzugefügt",
  webhookSecret: "Geheimnis",
  webhookSecretNote: "Jeder Aufruf ist damit signiert, wie Standard Webhooks es vorsieht. Es wird nur jetzt gezeigt.",
  inThisBrowser: "In diesem Browser benachrichtigen",
  onlyWhileOpen:
    "Kein Push-Dienst ist nutzbar. Benachrichtigungen kommen deshalb nur, solange eine Seite von Holdfast offen ist.",
  toldOf: "Benachrichtigen über",
  all: "Fertige Antworten, Fehler und Fragen",
  needsYou: "Nur Fehler und Fragen",
  none: "Nichts",
  asInSettings: "Wie in den Einstellungen",
  showsText: "Titel des Chats und Anfang der Antwort zeigen",
  install: "Als App installieren",
  phoneNote:
    "Scannen Sie den Code mit der Kamera des Telefons. Es muss angemeldet sein: Der Link allein gibt keinen Zugang.",
  phoneCode: "QR-Code des Links zu dieser Stelle im Chat",
  onlyThisMachine:
    "Diese Adresse gilt nur auf diesem Rechner. Öffnen Sie Holdfast unter einer Adresse, die Ihr Telefon erreicht.",
};

const ar: NotificationWords = {
  notifications: "الإشعارات",
  notifyBlocked: "المتصفح يمنع إشعارات هذه الصفحة.",
  openOnPhone: "الفتح على الهاتف",
  answerReady: "الرد جاهز",
  webhooks: "خطافات الويب",
  webhooksNote: "استدعاء عنوان خاص بك عند كل نهاية لعمليات تشغيلك، وعندما تنتظرك إحداها. لا يُرسل النص.",
  webhookAddress: "العنوان",
  addWebhook: "إضافة خطاف",
  remove: "إزالة",
  removeWebhook: (url) => `إزالة ${url}`,
  webhookMade: "أُضيف الخطاف",
  webhookSecret: "السر",
  webhookSecretNote: "كل استدعاء موقّع بهذا السر وفق Standard Webhooks. لا يظهر إلا الآن.",
  inThisBrowser: "إشعاري في هذا المتصفح",
  onlyWhileOpen: "لا تتوفر خدمة إشعارات، لذا لا تصل الإشعارات إلا وصفحة Holdfast مفتوحة.",
  toldOf: "إشعاري بما يلي",
  all: "الردود الجاهزة والأخطاء والأسئلة",
  needsYou: "الأخطاء والأسئلة فقط",
  none: "لا شيء",
  asInSettings: "كما في الإعدادات",
  showsText: "إظهار عنوان المحادثة وبداية الرد",
  install: "التثبيت كتطبيق",
  phoneNote: "امسح الرمز بكاميرا الهاتف. يجب تسجيل الدخول على الهاتف: الرابط وحده لا يمنح أي صلاحية.",
  phoneCode: "رمز QR للرابط إلى هذا الموضع في المحادثة",
  onlyThisMachine: "يعمل هذا العنوان على هذا الجهاز فقط. افتح Holdfast بعنوان يصل إليه هاتفك.",
};

const ALL: Record<Language, NotificationWords> = { en, de, ar };

/** The words, now. Who draws with them is drawn again when the language changes. */
export function n(): NotificationWords {
  t();
  return ALL[document.documentElement.lang as Language] ?? en;
}
