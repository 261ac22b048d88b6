/**
 * The service worker of the page: it shows notifications, and a page that says so while the server cannot be reached.
 * It keeps nothing else, so that an upgrade is never covered by an older page, and nothing private stays in a browser.
 */
const KEPT = "holdfast-offline";
const OFFLINE = ["/offline.html", "/offline.css", "/icon.svg"];
const WORDS = {
  en: {
    "run.completed": "The response is ready",
    "run.truncated": "The response is ready, up to its limit",
    "run.stopped": "The response was stopped",
    "run.failed": "The response has failed",
    "run.interrupted": "The response was interrupted",
    "run.waiting": "Your decision is needed",
  },
  de: {
    "run.completed": "Die Antwort ist fertig",
    "run.truncated": "Die Antwort ist fertig, bis zu ihrer Grenze",
    "run.stopped": "Die Antwort wurde angehalten",
    "run.failed": "Die Antwort ist fehlgeschlagen",
    "run.interrupted": "Die Antwort wurde unterbrochen",
    "run.waiting": "Ihre Entscheidung wird gebraucht",
  },
  ar: {
    "run.completed": "الرد جاهز",
    "run.truncated": "الرد جاهز حتى حده الأقصى",
    "run.stopped": "أُوقف الرد",
    "run.failed": "فشل الرد",
    "run.interrupted": "انقطع الرد",
    "run.waiting": "قرارك مطلوب",
  },
};

self.addEventListener("install", (event) => {
  const fresh = OFFLINE.map((path) => new Request(path, { cache: "reload" }));
  event.waitUntil(caches.open(KEPT).then((cache) => cache.addAll(fresh)));
  self.skipWaiting();
});

self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { pathname } = new URL(request.url);
  const isOurs = OFFLINE.includes(pathname);
  if (request.mode !== "navigate" && !isOurs) return;
  event.respondWith(
    fetch(request).catch(async () => (await caches.match(isOurs ? pathname : OFFLINE[0])) ?? Response.error()),
  );
});

self.addEventListener("push", (event) => event.waitUntil(tell(event.data.json())));

/** Show what the server tells of a chat, in the place of what it has told before. A repeated message makes no sound. */
async function tell({ id, type, session, language, title, text }) {
  const what = (WORDS[language] ?? WORDS.en)[type] ?? "Holdfast";
  const body = title ? [what, text].filter(Boolean).join("\n") : "Holdfast";
  const dir = language === "ar" ? "rtl" : "auto";
  const [before] = await self.registration.getNotifications({ tag: session });
  const renotify = before?.data !== id;
  const options = { body, dir, lang: language, tag: session, renotify, data: id, icon: "/icon-192.png" };
  await self.registration.showNotification(title || what, options);
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(show(`/s/${encodeURIComponent(event.notification.tag)}`));
});

/** Show a chat: in the window that shows it already, else in a new one. What another window shows stays. */
async function show(path) {
  const windows = await self.clients.matchAll({ type: "window" });
  const open = windows.find(({ url }) => new URL(url).pathname === path);
  await (open ? open.focus() : self.clients.openWindow(path));
}
