import { render } from "preact";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/controls.css";
import "./styles/chat.css";
import "./styles/markdown.css";
import "./state/away";
import { App } from "./app";

addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload(); // what happened while the page was put away was not heard
});

render(<App />, document.getElementById("app")!);
