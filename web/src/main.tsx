import { render } from "preact";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/controls.css";
import "./styles/chat.css";
import "./styles/markdown.css";
import { App } from "./app";
import { startConnection } from "./connection";
import { refuseToOpenFiles } from "./files/attaching";
import { listenForKeys } from "./keyboard";
import { watchUnread } from "./notifications/unread";
import { followOtherTabs } from "./people/passing";
import { followHistory, followLinks, isAtEntrance } from "./router";
import { watchServer } from "./state/away";
import { keepCaller } from "./state/caller";
import { followPlace } from "./state/current";
import { keepModels } from "./state/models";
import { keepPresets } from "./state/presets";
import { keepSessions } from "./state/sessions";
import { lazily } from "./ui/lazily";
import { speak } from "./words";

/** Whatever the page does of its own accord begins here: no module does anything when it is imported. */
function start(): void {
  followHistory();
  document.addEventListener("click", followLinks);
  document.addEventListener("dragover", refuseToOpenFiles);
  document.addEventListener("drop", refuseToOpenFiles);
  listenForKeys();
  startConnection();
  watchServer();
  followOtherTabs();
  if (isAtEntrance.value) return; // nothing else is for who is not signed in: a sign-in loads the page anew
  lazily(() => import("./notifications/install")).then(
    ({ startWorker }) => startWorker(),
    () => {}, // the page works without
  );
  keepCaller();
  keepModels();
  keepPresets();
  keepSessions();
  watchUnread();
  followPlace();
}

addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload(); // what happened while the page was put away was not heard
});

const root = document.getElementById("app");
if (root && location.pathname.startsWith("/shared/")) {
  Promise.all([import("./shared/page"), speak()]).then(([{ show }]) => show(root)); // who has a link has no sessions
} else if (root) {
  start();
  speak().then(() => render(<App />, root));
}
