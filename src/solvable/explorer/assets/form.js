// The controls of one setting. The server sends fields, texts and errors; every change goes back as one message.
const MOST_SLIDERS = 8;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child));
  return made;
}

// A symbol with its subscripts and superscripts as elements: R_k(0), d_out, C^w.
function typeset(symbol) {
  const made = document.createElement("span");
  for (const [, mark, body, plain] of symbol.matchAll(/([_^])(\{[^}]*\}|[\p{L}\p{N}*]+)|([^_^]+|[_^])/gu)) {
    if (!mark) made.append(plain);
    else {
      const script = document.createElement(mark === "_" ? "sub" : "sup");
      script.textContent = body.replace(/^\{|\}$/g, "");
      made.append(script);
    }
  }
  return made;
}

// The place of the stop that is nearest to a number. Stops are dense enough for the plain difference to decide, also on
// sliders that are even in the logarithm; a difference of logarithms cannot be compared with the distance to zero.
function nearest(stops, text) {
  const exact = stops.indexOf(text.trim());
  if (exact >= 0) return exact;
  const wanted = Number(text);
  let best = 0, distance = Infinity;
  stops.forEach((stop, place) => {
    if (stop === "" || stop === "inf") return;
    const apart = Math.abs(Number(stop) - wanted);
    if (apart < distance) { distance = apart; best = place; }
  });
  return best;
}

const spoken = (text) => text === "" ? "none" : text === "inf" ? "infinity" : text;

export function render({ model, el }) {
  const rows = new Map();
  let count = 0, waiting = null, last = 0;

  const send = (key, text) => { last = performance.now(); model.edited = { key, text, count: ++count }; };
  // At most one message in 50 ms, and always the last one.
  const throttled = (key, text) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => send(key, text), Math.max(0, 50 - (performance.now() - last)));
  };

  function slider(label, stops, onMove) {
    const range = element("input", { type: "range", min: 0, max: stops.length - 1, step: 1, "aria-label": label });
    const show = (text) => {
      range.value = nearest(stops, text);
      range.setAttribute("aria-valuetext", spoken(text));
      range.style.setProperty("--part", `${(100 * range.value) / Math.max(1, stops.length - 1)}%`);
    };
    range.addEventListener("input", () => { const text = stops[range.value]; show(text); onMove(text); });
    return { range, show };
  }

  function entrySliders(field, box, holder) {
    const parts = () => box.value.split(/([,;])/);
    const made = [];
    const rebuild = () => {
      holder.replaceChildren();
      made.length = 0;
      const numbers = parts().filter((_, place) => place % 2 === 0);
      if (!field.stops || box.value.includes(":") || !box.value.trim() || numbers.length > MOST_SLIDERS) return;
      numbers.forEach((text, place) => {
        const { range, show } = slider(`${field.help}, entry ${place + 1}`, field.stops, (moved) => {
          const all = parts();
          all[2 * place] = moved;
          box.value = all.join("");
          throttled(field.key, box.value);
        });
        show(text);
        made.push(show);
        holder.append(element("span", { class: "entry" }, element("small", {}, String(place + 1)), range));
      });
    };
    return () => {
      const numbers = parts().filter((_, place) => place % 2 === 0);
      if (made.length !== numbers.length) rebuild();
      else numbers.forEach((text, place) => made[place](text));
    };
  }

  function row(field) {
    const id = `${model.prefix}-${field.key}`;
    const error = element("p", { class: "complaint", id: `${id}-error`, role: "alert" });
    const label = element("label", { for: id });
    if (field.symbol) label.append(element("b", { class: "symbol" }, typeset(field.symbol)), " ");
    label.append(element("span", { class: "help" }, field.help + (field.units ? ` [${field.units}]` : "")));
    const shared = { id, "aria-describedby": `${id}-error ${id}-allowed`, spellcheck: "false", autocomplete: "off" };
    const holder = element("div", { class: "slider" });
    // Choices in words need more room than numbers.
    const wide = field.kind === "choice" && field.role !== "view" && field.names?.length ? " wide" : "";
    const made = element("div", { class: `row ${field.kind}${wide}`, "data-key": field.key });
    let box, show;
    if (field.kind === "check") {
      box = element("input", { ...shared, type: "checkbox" });
      box.addEventListener("change", () => send(field.key, box.checked ? "true" : "false"));
      show = (text) => { box.checked = text === "true"; };
    } else if (field.kind === "choice") {
      box = element("select", shared, 
        ...field.choices.map((choice, place) => element("option", { value: choice }, field.names?.[place] || choice || "default")));
      box.addEventListener("change", () => send(field.key, box.value));
      show = () => {};
    } else {
      const list = field.suggestions.length ? `${id}-list` : undefined;
      box = element("input", { ...shared, type: "text", inputmode: field.kind === "number" ? "decimal" : "text", list,
        placeholder: field.optional ? "none" : undefined });
      if (list) made.append(element("datalist", { id: list }, ...field.suggestions.map((value) => element("option", { value }))));
      let typing = null;
      box.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => send(field.key, box.value), 300); });
      box.addEventListener("change", () => { clearTimeout(typing); send(field.key, box.value); });
      if (field.kind === "number" && field.stops) {
        const made = slider(field.help, field.stops, (text) => { box.value = text; throttled(field.key, text); });
        holder.append(made.range);
        show = made.show;
      } else {
        const update = entrySliders(field, box, holder);
        show = () => update();
      }
    }
    made.append(label, box, holder, error, element("p", { class: "allowed", id: `${id}-allowed` }, field.allowed));
    rows.set(field.key, { box, error, show, made });
    return made;
  }

  // An option of the training is shown while the chosen training has it, or while there is something wrong with it.
  function showRelevant() {
    const chosen = model.texts.training;
    for (const field of model.fields) {
      const ofTraining = !chosen || !field.trainings?.length || field.trainings.includes(chosen);
      const [other, begins] = field.needs ?? [];
      const needed = !other || (model.texts[other] ?? "").startsWith(begins);
      const relevant = (ofTraining && needed) || field.key in model.errors;
      const made = rows.get(field.key)?.made;
      if (made) made.hidden = !relevant;
    }
  }

  // A text that was refused stays in its box while its error stands, except at first, when nobody has typed it here.
  function fill(first = false) {
    for (const [key, { box, show }] of rows) {
      const text = model.texts[key] ?? "";
      const typing = el.getRootNode().activeElement === box || box.getRootNode().activeElement === box;
      if (box.type === "checkbox") { show(text); continue; }
      if (!(typing && box.type === "text") && box.value !== text && (first === true || !(key in model.errors))) box.value = text;
      show(box.type === "text" ? box.value : text);
    }
    showRelevant();
  }

  function complain() {
    for (const [key, { box, error, made }] of rows) {
      const text = model.errors[key] ?? "";
      if (error.textContent !== text) error.textContent = text;
      box.setAttribute("aria-invalid", text ? "true" : "false");
      made.classList.toggle("wrong", Boolean(text));
      if (text) made.closest("details")?.setAttribute("open", "");
    }
    showRelevant();
  }

  const groups = [["view", null], ["parameter", "Model"], ["training", "Training"], ["times", null], ["theory", "Options of theory"], ["simulation", "Options of simulation"]];
  const form = element("form", { "aria-label": model.title, class: model.layout });
  form.addEventListener("submit", (event) => event.preventDefault());
  const build = () => {
    rows.clear();
    form.replaceChildren();
    if (model.heading) form.append(element("h2", {}, model.title));
    for (const [role, title] of groups) {
      const made = model.fields.filter((field) => field.role === role).map(row);
      if (!made.length) continue;
      // The model and its training make up a setting; options that few people change stay folded.
      const open = role === "parameter" || role === "training";
      if (title) form.append(element("details", { open }, element("summary", {}, title), ...made));
      else form.append(...made);
    }
    fill(true);
    complain();
  };
  model.on("fields", build);
  model.on("texts", () => fill());
  model.on("errors", complain);
  build();
  return form;
}
