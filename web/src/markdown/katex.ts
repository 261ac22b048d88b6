/** KaTeX, loaded when the first formula comes. It may define nothing, link nowhere and load nothing. */
import katex from "katex";
import "katex/dist/katex.css";

export function drawMath(text: string, place: HTMLElement, isBlock: boolean): void {
  const drawn = document.createElement("span");
  try {
    katex.render(text, drawn, {
      displayMode: isBlock,
      throwOnError: true,
      strict: "ignore",
      trust: false,
      maxExpand: 200,
      maxSize: 20,
    });
    takeStyles(drawn);
    place.replaceChildren(drawn);
  } catch {
    place.replaceChildren(text); // half a formula, or none
  }
}

/** The page's policy lets no style in by attribute. A few of KaTeX's come that way, and are taken over one by one. */
function takeStyles(drawn: HTMLElement): void {
  for (const element of drawn.querySelectorAll<HTMLElement>("[style]")) {
    if (!element.style.length) element.style.cssText = element.getAttribute("style") ?? "";
  }
}
