/** KaTeX, loaded when the first formula comes. It may define nothing, link nowhere and load nothing. */
import katex from "katex";
import "katex/dist/katex.css";

const OPTIONS = { throwOnError: true, strict: "ignore", trust: false, maxExpand: 200, maxSize: 20 } as const;

export function drawMath(text: string, place: HTMLElement, isBlock: boolean): void {
  const drawn = document.createElement("span");
  try {
    withStylesAsProperties(() => katex.render(text, drawn, { ...OPTIONS, displayMode: isBlock }));
    place.replaceChildren(drawn);
  } catch {
    place.replaceChildren(text); // half a formula, or none
  }
}

/** KaTeX sets a few styles by attribute, which the page's policy refuses. While it draws they are set as properties. */
function withStylesAsProperties(draw: () => void): void {
  const { setAttribute } = Element.prototype;
  Element.prototype.setAttribute = function (this: HTMLElement, name: string, value: string) {
    if (name === "style") this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
  try {
    draw();
  } finally {
    Element.prototype.setAttribute = setAttribute;
  }
}
