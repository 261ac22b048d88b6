/** Let a text box be as high as its text; the style sheet sets the limit. */
export function growWithText(box: HTMLTextAreaElement): void {
  if (CSS.supports("field-sizing", "content")) return;
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}
