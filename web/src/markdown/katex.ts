/** KaTeX, loaded when the first formula comes. It may define nothing, link nowhere and load nothing. */
import katex from "katex";

export function drawMath(text: string, place: HTMLElement, isBlock: boolean): void {
  const drawn = document.createElement("span");
  try {
    katex.render(text, drawn, {
      displayMode: isBlock,
      output: "mathml",
      throwOnError: true,
      strict: "ignore",
      trust: false,
      maxExpand: 200,
      maxSize: 20,
    });
    place.replaceChildren(drawn);
  } catch {
    place.replaceChildren(text); // half a formula, or none
  }
}
