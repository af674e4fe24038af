// Tabs by mouse and keyboard, as the ARIA authoring practices have them; the theme link keeps the state.
(() => {
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  const open = (tab, focus) => {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", String(chosen));
      other.tabIndex = chosen ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (focus) tab.focus();
    window.dispatchEvent(new CustomEvent("solvable-tab", { detail: tab.dataset.tab }));
    // Figures that were made while hidden learn their width.
    window.dispatchEvent(new Event("resize"));
  };
  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => open(tab, false));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to !== undefined) { event.preventDefault(); open(tabs[(to + tabs.length) % tabs.length], true); }
    });
  });
  const theme = document.getElementById("theme");
  theme.addEventListener("click", () => {
    const query = new URLSearchParams(location.search);
    const chosen = theme.textContent.split(" ")[0];
    query.set("theme", chosen);
    try { localStorage.setItem("solvable-theme", chosen); } catch { /* Storage may be closed: this page only. */ }
    theme.href = "?" + query.toString();
  });
  // On a phone the curves come first and the controls fold, unless something is wrong with one of them.
  const controls = document.querySelector(".controls");
  if (matchMedia("(max-width: 760px)").matches && !controls.dataset.wrong) controls.open = false;
  controls.addEventListener("toggle", () => {
    // The sheet of controls covers the lower part of a phone: what they change goes to the upper part.
    if (controls.open && matchMedia("(max-width: 760px)").matches) document.querySelector('[role="tabpanel"]:not([hidden])').scrollIntoView();
  });
})();
