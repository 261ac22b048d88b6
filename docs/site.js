// Mends what the theme leaves undone for people who use a keyboard or a screen reader.
// The theme adds some of these elements late, so this looks again after every change of the page.

const each = (selector, change) => document.querySelectorAll(selector).forEach(change);

function mend() {
  // Only the outer navigation is a landmark. Its inner lists and the buttons of code blocks are not.
  each("nav.md-code__nav, nav.md-nav nav.md-nav", (nav) => {
    nav.setAttribute("role", "none");
    for (const name of ["aria-label", "aria-labelledby", "aria-expanded"]) nav.removeAttribute(name);
  });
  each(".md-typeset__scrollwrap", (table) => table.setAttribute("tabindex", "0"));
  each(".md-version__current", (button) => button.setAttribute("aria-label", `Version ${button.textContent.trim()}`));
  each("th:empty", (cell) => cell.replaceWith(document.createElement("td")));
}

new MutationObserver(mend).observe(document.documentElement, {
  childList: true,
  subtree: true,
  attributeFilter: ["aria-expanded"],
});
mend();
