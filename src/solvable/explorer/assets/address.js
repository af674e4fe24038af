// Keeps the address in step without new entries in the history, and tells the server which tab is open.
export function render({ model }) {
  const root = document.createElement("span");
  const write = () => {
    if (model.query) history.replaceState(null, "", location.pathname + "?" + model.query);
  };
  model.on("query", write);
  window.addEventListener("solvable-tab", (event) => { model.tab = event.detail; });
  write();
  document.documentElement.dataset.ready = "yes";
  return root;
}
