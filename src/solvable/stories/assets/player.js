// Settings between the computed ones ------------------------------------------------------------------------------

class Grid {
  constructor(scene) {
    Object.assign(this, { scene, sliders: scene.sliders, ways: new WeakMap() });
  }

  // The position of the nearest computed setting.
  snap(slider, position) {
    return slider.nodes.reduce((best, node) => (Math.abs(node - position) < Math.abs(best - position) ? node : best));
  }

  node(positions) {
    const number = this.sliders.reduce((n, slider, k) => n * slider.nodes.length + slider.nodes.indexOf(this.snap(slider, positions[k])), 0);
    return this.scene.nodes[number];
  }

  corners(positions) {
    let found = [[1, 0]];
    this.sliders.forEach((slider, k) => {
      const nodes = slider.nodes;
      let right = nodes.findIndex((node) => node > positions[k]);
      right = clamp(right < 0 ? nodes.length - 1 : right, 1, nodes.length - 1);
      const share = (positions[k] - nodes[right - 1]) / (nodes[right] - nodes[right - 1]);
      found = found.flatMap(([weight, n]) => [[weight * (1 - share), n * nodes.length + right - 1], [weight * share, n * nodes.length + right]]);
    });
    return found.filter(([weight]) => weight > 0).map(([weight, n]) => [weight, this.scene.nodes[n]]);
  }

  // Fractions of the time axis and coordinates of all curves, at evenly spaced fractions of the way along the curves:
  // see solvable.stories.interpolation.
  along(state) {
    if (!this.ways.has(state)) this.ways.set(state, this.scene.aligned ? aligned(state, this.scene.node_axes) : plain(state));
    return this.ways.get(state);
  }

  // The state at any position: the nearest computed one, with curves interpolated where all neighbours have the same.
  at(positions) {
    const nearest = this.node(positions);
    const corners = this.corners(positions);
    const shape = (state) => JSON.stringify((state.curves || []).map((panel) => panel.map((curve) => curve.name)));
    const alike = corners.every(([, state]) => !state.error && shape(state) === shape(nearest) && state.times.length === nearest.times.length);
    if (nearest.error || !alike) return nearest;
    let parts = corners.map(([weight, state]) => [weight, this.along(state)]);
    if (parts.some(([, way]) => way.gaps)) parts = corners.map(([weight, state]) => [weight, plain(state)]);
    const mean = (rows) => rows[0][1].map((_, i) => rows.reduce((sum, [weight, row]) => sum + weight * row[i], 0));
    const times = mean(parts.map(([weight, way]) => [weight, way.fractions])).map((f) => timeAt(nearest, f));
    let place = -1;
    const curves = nearest.curves.map((panel) =>
      panel.map((curve) => {
        place += 1;
        return { ...curve, values: mean(parts.map(([weight, way]) => [weight, way.rows[place]])) };
      }),
    );
    return { ...nearest, times, curves };
  }
}

function plain(state) {
  return { fractions: state.times.map((time) => fractionOf(state, time)), rows: state.curves.flat().map((curve) => unpack(curve.y)) };
}

const ACROSS = 0.05;
const POINTS = 241;
function aligned(state, axes) {
  const { fractions, rows } = plain(state);
  if (rows.some((row) => row.some(Number.isNaN))) return { fractions, rows, gaps: true };
  const heights = state.curves.flatMap((panel, p) =>
    panel.map((curve) => unpack(curve.y).map((value) => clamp((value - axes[p].low) / (axes[p].high - axes[p].low), 0, 1))),
  );
  const way = [0];
  for (let i = 1; i < fractions.length; i++) {
    const up = heights.reduce((sum, row) => sum + Math.abs(row[i] - row[i - 1]), 0) / heights.length;
    way.push(way[i - 1] + ACROSS * (fractions[i] - fractions[i - 1]) + up);
  }
  const points = Array.from({ length: POINTS }, (_, n) => (way.at(-1) * n) / (POINTS - 1));
  const sampled = (values) => points.map((point) => valueAt(values, way, point, false));
  return { fractions: sampled(fractions), rows: rows.map(sampled) };
}

// The player ------------------------------------------------------------------------------------------------------

class Player {
  constructor(scene, links) {
    Object.assign(this, { scene, links, grid: new Grid(scene), history: [], ghost: null, playing: 0 });
    this.figure = new Figure(byId("curves"));
    this.picture = new SystemPicture(byId("system"));
    this.step = 0;
    this.positions = scene.sliders.map((slider) => slider.start);
    this.f = 1;
    this.buildTexts();
    this.buildSliders();
    this.buildPlane();
    this.listen();
    const begun = this.readAddress();
    this.show();
    if (!begun) this.beginStep();
  }

  get last() {
    return this.step === this.scene.steps.length - 1;
  }

  // The settled state: a step's own, or on the last step that of the sliders.
  settledState() {
    const moved = this.last && this.positions.some((position, k) => position !== this.scene.sliders[k].start);
    const node = moved ? this.grid.node(this.positions) : null;
    return node && !node.error ? node : this.scene.steps[this.step];
  }

  // Building the page ---------------------------------------------------------------------------------------------

  buildTexts() {
    const { scene, links } = this;
    document.title = `${scene.question} · solvable`;
    byId("question").textContent = scene.question;
    scene.steps.forEach((step, n) => {
      const button = make("button", { type: "button", onclick: () => this.open(n), "aria-label": `${n + 1} ${step.title}` });
      button.append(`${n + 1} `, make("span", {}, step.title));
      byId("steps").append(make("li", {}, button));
      const card = make("section", { "aria-label": `Step ${n + 1}` }, make("h2", { class: "hidden" }, step.title), make("p", {}, step.text));
      if (step.question && n + 1 < scene.steps.length) card.append(make("button", { type: "button", class: "next", onclick: () => this.open(n + 1) }, `${step.question} →`));
      byId("cards").append(card);
    });
    const answer = make("p", { id: "answer" }, scene.answer);
    const button = make("button", { type: "button", id: "ask", "aria-expanded": "false", "aria-controls": "answer" }, "show answer");
    button.addEventListener("click", () => this.toggleAnswer());
    byId("challenge").append(make("strong", {}, "Challenge"), make("p", {}, scene.challenge), button, answer);
    if (links.free) byId("free").hidden = false;
    if (!links.stories) byId("all").hidden = true;
    const percent = (share) => `${readable(100 * share, 2)} %`;
    const { errors } = scene;
    byId("about").textContent =
      `Every step and every computed setting shows the model's exact theory, whose own relative error is at most ${readable(errors.theory, 1)}. ` +
      `Curves are rounded to ${percent(errors.rounding)} of a panel's height. Between computed settings, while a slider is dragged, they are interpolated: ` +
      `at ${errors.points} test settings the error is at most ${percent(errors.largest)} of a panel's height, half of the time below ${percent(errors.median)}. ` +
      `Computed on ${scene.made} with solvable ${scene.version}, story ${scene.fingerprint}.`;
  }

  toggleAnswer() {
    const open = byId("answer").classList.toggle("open");
    byId("ask").textContent = open ? "hide answer" : "show answer";
    byId("ask").setAttribute("aria-expanded", String(open));
  }

  buildSliders() {
    const card = byId("sliders");
    this.inputs = this.scene.sliders.map((slider, k) => {
      const symbol = slider.symbol && slider.symbol !== slider.label ? [", ", typeset(slider.symbol)] : [];
      const id = `slider-${slider.key}`;
      const input = make("input", { type: "range", id, min: 0, max: slider.stops.length - 1, step: "any", title: slider.help });
      const output = make("output", { for: id });
      input.addEventListener("input", () => this.drag(k, Number(input.value)));
      input.addEventListener("change", () => this.release(k, Number(input.value)));
      input.addEventListener("keydown", (event) => this.sliderKey(event, k));
      card.append(make("div", { class: "slider" }, make("label", { for: id }, slider.label, ...symbol), output, input));
      return { input, output };
    });
    const { errors } = this.scene;
    // Until the last step the sliders show what the story has set, and do not move.
    const steps = this.scene.steps;
    const note = make("p", { class: "small free" }, `Between computed settings curves are interpolated; largest error ${readable(100 * errors.largest, 2)} % of the height. `);
    note.append(this.links.free ? make("a", { id: "more" }, "more controls") : `More controls: solvable explore ${this.scene.model}`);
    const locked = make("p", { class: "small" }, `Set by the story; you move them in step ${steps.length}, “${steps.at(-1).title}”.`);
    card.append(make("div", { class: "notes" }, locked, note));
  }

  buildPlane() {
    const { plane, sliders } = this.scene;
    this.map = plane && new PlanePicture(byId("plane"), plane, (values, final) => this.moveOnPlane(values, final));
    if (!plane) return;
    const drag = plane.axes.some(({ slider }) => slider !== null) ? " Click or drag to move the sliders." : "";
    const others = sliders.filter((_, k) => !plane.axes.some(({ slider }) => slider === k)).map(({ label }) => label);
    const fixed = others.length ? ` Computed at the story's own ${others.join(" and ")}.` : "";
    byId("map-words").textContent = `${plane.label} over two controls; grey where it is not defined.${drag}${fixed}`;
  }

  // The values of the current setting on the axes of the plane.
  planeValues() {
    const of = ({ slider, value }) => {
      if (slider === null) return value;
      const { stops } = this.scene.sliders[slider];
      const text = stops[Math.round(this.positions[slider])];
      return text === "" || text === "inf" ? Infinity : Number(text);
    };
    return this.scene.plane.axes.map(of);
  }

  moveOnPlane(values, final) {
    const changes = this.scene.plane.axes.flatMap(({ slider }, n) => {
      if (slider === null) return [];
      const { stops } = this.scene.sliders[slider];
      const apart = (text) => Math.abs(Number(text === "" || text === "inf" ? Infinity : text) - values[n]);
      return [[slider, stops.reduce((best, text, k) => (apart(text) < apart(stops[best]) ? k : best), 0)]];
    });
    this.move(changes, final);
  }

  listen() {
    const svg = byId("curves");
    const move = (event) => this.seek(this.figure.fractionAt(event.clientX));
    svg.addEventListener("pointerdown", (event) => {
      this.pause();
      svg.setPointerCapture(event.pointerId);
      move(event);
      svg.addEventListener("pointermove", move);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      svg.addEventListener(end, () => {
        svg.removeEventListener("pointermove", move);
        this.writeAddress();
      });
    }
    byId("time").addEventListener("input", (event) => {
      this.pause();
      this.seek(Number(event.target.value));
    });
    byId("time").addEventListener("change", () => this.writeAddress());
    byId("play").addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    byId("back").addEventListener("click", () => this.stepTime(-1));
    byId("forward").addEventListener("click", () => this.stepTime(1));
    byId("undo").addEventListener("click", () => this.undo());
    byId("reset").addEventListener("click", () => this.reset());
    byId("link").addEventListener("click", () => this.copyLink());
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => {
      if (location.hash !== this.address && this.readAddress()) this.show();
    });
    new ResizeObserver(() => this.show()).observe(svg);
  }

  // What the visitor does -----------------------------------------------------------------------------------------

  remember() {
    this.history.push({ step: this.step, positions: [...this.positions], f: this.f });
    this.ghost = this.settledState();
  }

  open(step) {
    if (step !== this.step) {
      this.remember();
      this.step = step;
      if (this.history.length > 200) this.history.shift();
    }
    this.show();
    this.beginStep();
    this.writeAddress();
  }

  beginStep() {
    const { cursor, play } = this.scene.steps[this.step];
    if (play && !reducedMotion()) {
      this.seek(0);
      this.play(cursor);
    } else {
      this.pause();
      this.seek(cursor);
    }
  }

  drag(k, position) {
    this.move([[k, position]], false);
  }

  release(k, position) {
    this.move([[k, position]], true);
  }

  // Moves sliders; when they are let go, to computed settings. A whole drag is one change to undo.
  move(changes, final) {
    if (!this.dragged) this.remember();
    this.dragged = !final;
    for (const [k, position] of changes) {
      this.positions = this.positions.map((old, n) => (n !== k ? old : final ? this.grid.snap(this.scene.sliders[k], position) : position));
    }
    if (!final) return this.show(this.grid.at(this.positions), false);
    this.show();
    this.writeAddress();
  }

  // Keys move a slider from one computed setting to the next.
  sliderKey(event, k) {
    const { nodes } = this.scene.sliders[k];
    const place = nodes.indexOf(this.positions[k]);
    const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 3, PageDown: -3, Home: -nodes.length, End: nodes.length };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.release(k, nodes[clamp(place + moves[event.key], 0, nodes.length - 1)]);
  }

  key(event) {
    const tag = event.target.tagName;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      if (event.key === "z" && (event.ctrlKey || event.metaKey)) this.undo();
      return;
    }
    if (event.key === " " && !["BUTTON", "A", "SUMMARY"].includes(tag)) {
      event.preventDefault();
      this.playing ? this.pause() : this.play();
    } else if (tag !== "INPUT" && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
      event.preventDefault();
      this.stepTime(event.key === "ArrowRight" ? 1 : -1);
    } else if (/^[1-9]$/.test(event.key) && Number(event.key) <= this.scene.steps.length) this.open(Number(event.key) - 1);
  }

  undo() {
    const before = this.history.pop();
    if (!before) return;
    this.pause();
    this.ghost = this.settledState();
    Object.assign(this, before);
    this.show();
    this.writeAddress();
  }

  // Back to the story's own setting and the beginning of the step.
  reset() {
    this.remember();
    this.positions = this.scene.sliders.map((slider) => slider.start);
    this.show();
    this.beginStep();
    this.writeAddress();
  }

  // Time ----------------------------------------------------------------------------------------------------------

  play(until = 1) {
    this.pause();
    if (this.f >= until) this.seek(0);
    let before = performance.now();
    const frame = (now) => {
      // A full pass takes six seconds.
      this.seek(Math.min(until, this.f + (now - before) / 6000));
      before = now;
      if (this.f >= until) {
        this.pause();
        this.writeAddress();
      } else this.playing = requestAnimationFrame(frame);
    };
    this.playing = requestAnimationFrame(frame);
    this.showPlaying();
  }

  pause() {
    cancelAnimationFrame(this.playing);
    this.playing = 0;
    this.showPlaying();
  }

  showPlaying() {
    const button = byId("play");
    const word = this.playing ? "pause" : "play";
    button.setAttribute("aria-label", word);
    button.lastElementChild.textContent = word;
    byId("icon").setAttribute("d", this.playing ? "M1 0h3.5v12H1zM7.5 0H11v12H7.5z" : "M1 0l10 6-10 6z");
  }

  stepTime(direction) {
    this.pause();
    this.seek(clamp(this.f + direction / 60, 0, 1));
    this.writeAddress();
  }

  seek(f) {
    this.f = f;
    const { state } = this;
    const time = this.scene.time.whole ? Math.round(timeAt(state, f)) : timeAt(state, f);
    const words = this.scene.time.whole ? `step ${readable(time)}` : `time ${readable(time)}`;
    this.figure.moveTo(f);
    this.picture.show(state.system, time, state.log_time);
    byId("time").value = f;
    byId("time").setAttribute("aria-valuetext", words);
    byId("now").textContent = `${words} of ${readable(state.times.at(-1))}`;
    byId("view-time").textContent = words;
    this.showValues(time);
  }

  showValues(time) {
    const { state } = this;
    const said = [];
    let place = 0;
    state.curves.forEach((panel, p) =>
      panel.forEach((curve) => {
        const coordinate = valueAt(curve.values || unpack(curve.y), state.times, time, state.log_time);
        const axis = this.axes[p];
        const tiny = axis.log && coordinate < axis.low - 1.9;
        const text = tiny ? `< ${power(Math.round(axis.low - 2))}` : readable(axis.log ? 10 ** coordinate : coordinate);
        this.valueTexts[place++].textContent = text;
        said.push(`${curve.name} ${text}`);
      }),
    );
    const when = byId("view-time").textContent;
    byId("curves").setAttribute("aria-label", `Curves over ${this.scene.time.label}. At ${when}: ${said.join(", ")}.`);
  }

  // Showing -------------------------------------------------------------------------------------------------------

  show(state = this.settledState(), settled = true) {
    const changed = this.state !== state;
    this.state = state.error ? this.settledState() : state;
    const step = this.scene.steps[this.step];
    this.axes = this.last ? this.scene.node_axes : this.scene.axes;
    const ghost = this.ghost && this.ghost.query !== this.state.query ? this.ghost : null;
    const lookAt = this.last ? "" : step.look_at;
    this.figure.show(this.state, this.axes, this.scene.time.label, { ghost, lookAt, settled });
    if (changed) this.showLists();
    this.showTexts(this.last ? this.grid.node(this.positions) : this.state, settled);
    byId("view").classList.toggle("look", step.look_at === "system");
    byId("map").hidden = !this.last || !this.map;
    if (this.last && this.map) this.map.show(this.planeValues());
    this.seek(this.f);
  }

  showLists() {
    const items = this.state.curves.flatMap((panel) =>
      panel.map((curve, n) => {
        const value = make("b");
        return { value, item: make("li", {}, make("i", { style: `background:${colourOf(curve, n)}` }), curve.name, value) };
      }),
    );
    this.valueTexts = items.map(({ value }) => value);
    byId("values").replaceChildren(...items.map(({ item }) => item));
  }

  showTexts(node, settled) {
    const { state, scene, last } = this;
    [...byId("steps").children].forEach((item, n) => {
      if (n === this.step) item.firstChild.setAttribute("aria-current", "step");
      else item.firstChild.removeAttribute("aria-current");
      byId("cards").children[n].classList.toggle("open", n === this.step);
    });
    byId("challenge").classList.toggle("open", last);
    byId("sliders").classList.toggle("free", last);
    const sentence = node.error ? `No theory at this setting: ${node.error}` : state.sentence;
    if (byId("sentence").textContent !== sentence) byId("sentence").textContent = sentence;
    byId("sentence").classList.toggle("near", !settled);
    this.inputs.forEach(({ input, output }, k) => {
      const slider = scene.sliders[k];
      // On other steps the sliders show where the story has moved them.
      const position = last ? this.positions[k] : slider.at[this.step].position;
      const text = (last ? slider.stops[Math.round(position)] : slider.at[this.step].text) || "∞";
      input.disabled = !last;
      input.value = position;
      input.setAttribute("aria-valuetext", text);
      output.textContent = settled ? text : `≈ ${text}`;
    });
    byId("undo").disabled = !this.history.length;
    byId("view").style.visibility = state.system ? "visible" : "hidden";
    if (state.system) {
      byId("view-title").textContent = state.system.title;
      byId("caption").textContent = state.system.caption;
      byId("system").setAttribute("aria-label", `${state.system.title}. ${state.system.caption}`);
    }
    byId("python").textContent = state.python;
    byId("command").textContent = state.command;
    if (this.links.free) for (const id of ["free", "more"]) byId(id).href = `${this.links.free}?${state.query}`;
  }

  // The address holds the step, the time and the sliders --------------------------------------------------------------

  writeAddress() {
    const pairs = new URLSearchParams({ step: this.step + 1, t: Number(this.f.toFixed(3)) });
    if (this.last) this.scene.sliders.forEach((slider, k) => pairs.set(slider.key, slider.stops[this.positions[k]]));
    this.address = `#${pairs}`;
    try {
      history.replaceState(null, "", this.address);
    } catch {
      // A page inside a notebook has no address of its own.
    }
  }

  readAddress() {
    const pairs = new URLSearchParams(location.hash.slice(1));
    const step = Number(pairs.get("step"));
    if (!Number.isInteger(step) || step < 1 || step > this.scene.steps.length) return false;
    this.step = step - 1;
    const f = Number(pairs.get("t") ?? 1);
    this.f = Number.isFinite(f) ? clamp(f, 0, 1) : 1;
    this.positions = this.scene.sliders.map((slider) => {
      const place = slider.stops.indexOf(pairs.get(slider.key));
      return place < 0 ? slider.start : this.grid.snap(slider, place);
    });
    return true;
  }

  async copyLink() {
    this.writeAddress();
    const text = location.href.startsWith("about:") ? this.address : location.href;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const box = make("textarea", {}, text);
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    byId("link").textContent = "copied";
    setTimeout(() => (byId("link").textContent = "copy link"), 1500);
  }
}

// The landing view ------------------------------------------------------------------------------------------------

function showTiles(tiles) {
  for (const tile of tiles) {
    const link = make("a", { href: tile.href }, make("strong", {}, tile.question));
    byId("tiles").append(make("li", {}, link));
    if (tile.state) {
      const svg = draw(link, "svg", { role: "img", "aria-label": `Curves of ${tile.model}` });
      new Figure(svg).show(tile.state, [tile.axis], "", { thumbnail: true });
    } else link.append(make("span", {}, tile.summary));
    link.append(make("span", { class: "open" }, tile.state ? "start the story" : "open"));
  }
}

// Beginning -------------------------------------------------------------------------------------------------------

// Light or dark as the system says, until the visitor says otherwise.
function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("solvable-theme");
  } catch {
    // Storage is closed to pages inside others: the system's theme it is.
  }
  const apply = () => {
    const theme = chosen || (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    byId("theme").textContent = theme === "dark" ? "light" : "dark";
    byId("theme").setAttribute("aria-label", `use the ${theme === "dark" ? "light" : "dark"} theme`);
  };
  dark.addEventListener("change", apply);
  byId("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("solvable-theme", chosen);
    } catch {
      // As above.
    }
    apply();
  });
  apply();
}

async function readScene(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

followTheme();
const data = byId("data").textContent;
if (byId("tiles")) showTiles(JSON.parse(data));
else readScene(data).then((scene) => (window.player = new Player(scene, JSON.parse(byId("links").textContent))));
