// Undo, reset, and copy the address. The address is the browser's: the server does not know how it is reached.
export function render({ model }) {
  const root = document.createElement("div");
  root.setAttribute("role", "toolbar");
  root.setAttribute("aria-label", "Changes");
  const button = (text, title, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.title = title;
    made.addEventListener("click", act);
    root.append(made);
    return made;
  };
  const press = (action) => () => { model.pressed = { action, count: (model.pressed.count ?? 0) + 1 }; };
  const undo = button("Undo", "Undo the last change", press("undo"));
  button("Reset", "Back to the setting that the model opens with", press("reset"));
  button("Copy link", "Copy the address of this page, which holds its whole state", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
    } catch {
      const box = document.createElement("textarea");
      box.value = location.href;
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    said.textContent = "copied";
    setTimeout(() => { said.textContent = ""; }, 2500);
  });
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  root.append(said);
  const show = () => { undo.disabled = !model.can_undo; };
  model.on("can_undo", show);
  show();
  return root;
}
