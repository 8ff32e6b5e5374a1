// Before anything is drawn: the theme that was chosen here, if any. Else the system's.
(() => {
  try {
    const chosen = localStorage.getItem("toolreef.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; the system's theme is used then.
  }
})();
