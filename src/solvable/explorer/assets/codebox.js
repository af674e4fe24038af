// Code to copy: a heading, a button, the text.
export function render({ model }) {
  const root = document.createElement("section");
  const head = document.createElement("div");
  const title = document.createElement("h3");
  title.textContent = model.title;
  const copy = document.createElement("button");
  copy.type = "button";
  copy.textContent = "Copy";
  copy.setAttribute("aria-label", `Copy ${model.title}`);
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  const code = document.createElement("pre");
  code.tabIndex = 0;
  code.setAttribute("aria-label", model.title);
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(model.code);
      said.textContent = "copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      said.textContent = "selected: press Ctrl+C";
    }
    setTimeout(() => { said.textContent = ""; }, 2500);
  });
  head.append(title, copy, said);
  root.append(head, code);
  const show = () => { code.textContent = model.code; };
  model.on("code", show);
  show();
  return root;
}
