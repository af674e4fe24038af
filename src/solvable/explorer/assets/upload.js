// A file to read: checked here for its size, so that one too large is refused before it travels.
export function render({ model }) {
  const root = document.createElement("div");
  root.className = "drop";
  const label = document.createElement("label");
  label.textContent = model.label;
  label.htmlFor = model.ident;
  const input = document.createElement("input");
  input.type = "file";
  input.id = model.ident;
  input.accept = model.accept;
  const wrong = document.createElement("p");
  wrong.className = "complaint";
  wrong.setAttribute("role", "alert");
  const take = async (file) => {
    wrong.textContent = "";
    if (!file) return;
    if (file.size > model.limit) {
      wrong.textContent = `${file.name} has ${(file.size / 1e6).toFixed(1)} MB, more than the ${(model.limit / 1e6).toFixed(0)} MB this page takes: use the command line`;
      return;
    }
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (let place = 0; place < bytes.length; place += 32768) text += String.fromCharCode(...bytes.subarray(place, place + 32768));
    model.file = { name: file.name, content: btoa(text), count: (model.file.count ?? 0) + 1 };
  };
  input.addEventListener("change", () => take(input.files[0]));
  root.addEventListener("dragover", (event) => { event.preventDefault(); root.classList.add("over"); });
  root.addEventListener("dragleave", () => root.classList.remove("over"));
  root.addEventListener("drop", (event) => { event.preventDefault(); root.classList.remove("over"); take(event.dataTransfer.files[0]); });
  root.append(label, input, wrong);
  return root;
}
