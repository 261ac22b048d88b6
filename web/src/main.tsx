import { render } from "preact";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/controls.css";
import "./styles/chat.css";
import "./styles/markdown.css";
import "./state/away";
import { App } from "./app";
import { speak } from "./words";

addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload(); // what happened while the page was put away was not heard
});

speak().then(() => render(<App />, document.getElementById("app")!));
