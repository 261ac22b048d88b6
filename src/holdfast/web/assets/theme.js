// Runs before the first paint, so that a chosen theme or density does not flash.
const theme = localStorage.getItem("holdfast.theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
if (localStorage.getItem("holdfast.density") === "dense") document.documentElement.dataset.density = "dense";
