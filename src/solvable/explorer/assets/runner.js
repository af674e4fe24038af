// Simulate, cancel, how far it is, and what came of it.
export function render({ model, el }) {
  const root = document.createElement("div");
  const button = (text, action) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => { model.pressed = { action, count: (model.pressed.count ?? 0) + 1 }; });
    return made;
  };
  const start = button(model.label, "start"), stop = button("Cancel", "cancel");
  start.className = "main";
  const bar = document.createElement("progress");
  bar.max = 1;
  bar.setAttribute("aria-label", "progress");
  const status = document.createElement("p");
  status.setAttribute("role", "status");
  const wrong = document.createElement("p");
  wrong.className = "complaint";
  wrong.setAttribute("role", "alert");
  root.append(start, stop, bar, status, wrong);
  const show = () => {
    const busy = model.share >= 0;
    start.disabled = busy;
    start.hidden = !model.label;
    stop.disabled = !busy;
    stop.hidden = !model.label && !busy;
    bar.hidden = !busy;
    // A share of zero is work whose end is not known yet: the bar then moves to and fro.
    if (busy && model.share > 0) bar.value = model.share; else bar.removeAttribute("value");
    status.textContent = model.status;
    wrong.textContent = model.error;
  };
  for (const name of ["share", "status", "error"]) model.on(name, show);
  show();
  return root;
}
