"use strict";
// The player of stories. A page holds a scene (computed by solvable.stories) and this script draws it: no library, no
// request. Figure draws the curves, SystemPicture the system at one time, Player reacts to the visitor.

// Small tools -----------------------------------------------------------------------------------------------------

const byId = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function draw(parent, tag, attributes = {}, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
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

const unpacked = new WeakMap();
// The numbers of solvable.stories.packing.pack: levels between low and high, stored as differences.
function unpack(packed) {
  if (!unpacked.has(packed)) {
    let level = 0;
    const unit = (packed.high - packed.low) / packed.levels;
    const values = packed.steps.map((step) => (step === null ? NaN : packed.low + unit * (level += step)));
    unpacked.set(packed, values);
  }
  return unpacked.get(packed);
}

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const power = (n) => "10" + (n < 0 ? "⁻" : "") + [...String(Math.abs(n))].map((digit) => SUPERSCRIPTS[digit]).join("");

// A number as one would say it; never NaN.
function readable(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  const rounded = Number(value.toPrecision(digits));
  if (rounded === 0) return "0";
  const size = Math.abs(rounded);
  if (size < 1e-4 || size >= 1e9) {
    const n = Math.floor(Math.log10(size) + 1e-12);
    const factor = Number((rounded / 10 ** n).toPrecision(digits));
    return factor === 1 ? power(n) : `${factor} × ${power(n)}`;
  }
  return size >= 10 ** (digits - 1) ? Math.round(rounded).toLocaleString("en-US") : String(rounded);
}

function ticks(low, high, most) {
  const raw = (high - low) / most;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= raw);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) found.push(Number((n * step).toPrecision(12)));
  return found;
}

// A few whole powers of ten between two exponents.
function decades(low, high, most) {
  const every = Math.max(1, Math.ceil((high - low) / most));
  const found = [];
  for (let n = Math.ceil(low - 1e-9); n <= high + 1e-9; n++) if (n % every === 0) found.push(n);
  return found;
}

const tickText = (n) => (n >= 0 && n < 4 ? (10 ** n).toLocaleString("en-US") : n < 0 && n > -3 ? String(10 ** n) : power(n));

// The index before a time and the fraction of the way to the next, on the axis of the state.
function between(times, time, log) {
  let right = times.findIndex((one) => one >= time);
  if (right < 0) right = times.length - 1;
  if (right === 0) return [0, 0];
  const scale = log ? Math.log : (t) => t;
  const [a, b] = [scale(times[right - 1]), scale(times[right])];
  return [right - 1, clamp((scale(time) - a) / (b - a), 0, 1)];
}

function valueAt(values, times, time, log) {
  const [place, share] = between(times, time, log);
  return share === 0 ? values[place] : values[place] * (1 - share) + values[place + 1] * share;
}

// Time of a state as a fraction of its axis, and back.
const timeAt = (state, f) => {
  const [first, last] = [state.times[0], state.times.at(-1)];
  return state.log_time ? first * (last / first) ** f : first + (last - first) * f;
};
const fractionOf = (state, time) => {
  const [first, last] = [state.times[0], state.times.at(-1)];
  return state.log_time ? Math.log(time / first) / Math.log(last / first) : (time - first) / (last - first);
};

function colourOf(curve, place) {
  if (curve.variable.startsWith("train")) return "var(--train)";
  if (curve.variable.startsWith("test")) return "var(--test)";
  return `var(--c${place % 8})`;
}

const pathOf = (points) => points.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");

// A line with points every few pixels: a steep part has few of its own.
function dense(points) {
  return points.flatMap(([x, y], n) => {
    const [nextX, nextY] = points[n + 1] ?? [x, y];
    const count = clamp(Math.ceil(Math.hypot(nextX - x, nextY - y) / 6), 1, 200);
    return Array.from({ length: count }, (_, k) => [x + ((nextX - x) * k) / count, y + ((nextY - y) * k) / count]);
  });
}

// Labels that do not cover each other -----------------------------------------------------------------------------

// Places texts one after the other where they cover least of the curves and no text that is there already.
class Labels {
  constructor(layer, lines, bounds) {
    Object.assign(this, { layer, points: lines.flatMap(dense), bounds, boxes: [] });
  }

  // Another line that texts should not cover.
  avoid(line) {
    this.points.push(...dense(line));
  }

  // Candidates are [x, y, anchor] of the first line's baseline.
  best(lines, candidates) {
    const width = Math.max(...lines.map((line) => line.length)) * 6.9 + 6;
    const height = lines.length * 16;
    const boxes = candidates.map(([x, y, anchor]) => {
      const left = anchor === "end" ? x - width : anchor === "middle" ? x - width / 2 : x;
      return { left, right: left + width, top: y - 13, bottom: y - 13 + height };
    });
    const costs = boxes.map((box, n) => this.cost(box) + 0.6 * n);
    const best = costs.indexOf(Math.min(...costs));
    return { cost: costs[best], spot: candidates[best], box: boxes[best] };
  }

  place(lines, candidates, attributes) {
    const { spot: [x, y, anchor], box } = this.best(lines, candidates);
    const label = draw(this.layer, "text", { x, y, "text-anchor": anchor, ...attributes });
    lines.forEach((line, n) => {
      const [base, exponent] = line.split("^");
      draw(label, "tspan", { x, dy: n ? 16 : 0, class: n ? "" : "first" }, base);
      if (exponent) draw(label, "tspan", { dy: -5, "font-size": "0.85em" }, exponent.replace("-", "−"));
    });
    this.boxes.push(box);
  }

  cost(box) {
    const inside = ([x, y]) => x > box.left && x < box.right && y > box.top - 3 && y < box.bottom;
    const covers = (b) => b.left < box.right && b.right > box.left && b.top < box.bottom && b.bottom > box.top;
    const { left, right, top, bottom } = this.bounds;
    const outside = Math.max(0, left - box.left) + Math.max(0, box.right - right) + Math.max(0, top - box.top) + Math.max(0, box.bottom - bottom);
    return this.points.filter(inside).length + 200 * this.boxes.filter(covers).length + 20 * outside;
  }
}

// The curves ------------------------------------------------------------------------------------------------------

class Figure {
  constructor(svg) {
    this.svg = svg;
  }

  // Draws a state: `ghost` is the state before, `lookAt` what is highlighted, `settled` whether the marks are its own.
  show(state, axes, timeLabel, { ghost = null, lookAt = "", settled = true, thumbnail = false } = {}) {
    Object.assign(this, { state, axes, lookAt, settled, thumbnail });
    const { clientWidth: width, clientHeight: height } = this.svg;
    if (!width || !height) return;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.narrow = width < 520;
    this.names = state.curves.flat().map((curve) => curve.name);
    const room = thumbnail ? 4 : Math.min(Math.max(...this.names.map((name) => name.length)) * (this.narrow ? 6.3 : 7.1) + 17, width * 0.28);
    this.left = thumbnail ? 4 : this.narrow ? 38 : 52;
    this.right = width - room;
    this.layOut(height, thumbnail);
    this.clips();
    for (const panel of this.panels) this.drawAxes(panel, timeLabel);
    const marks = draw(this.svg, "g", { class: settled ? "" : "near-marks" });
    this.drawBands(marks);
    if (ghost) this.drawGhost(ghost);
    for (const panel of this.panels) this.drawCurves(panel);
    if (thumbnail) return;
    this.drawCursor();
    this.drawMarks(marks);
    this.drawNames();
  }

  layOut(height, thumbnail) {
    const [top, bottom, gap] = thumbnail ? [6, 6, 0] : [30, 42, 30];
    const count = this.axes.length;
    const each = (height - top - bottom - gap * (count - 1)) / count;
    this.panels = this.axes.map((axis, n) => {
      const upper = top + n * (each + gap);
      const toY = (value) => upper + each * (1 - (value - axis.low) / (axis.high - axis.low));
      const panel = { axis, top: upper, bottom: upper + each, toY, curves: this.state.curves[n], last: n === count - 1 };
      const scale = (time) => this.toX(time);
      panel.lines = panel.curves.map((curve) => {
        const values = curve.values || unpack(curve.y);
        const points = values.map((value, i) => [scale(this.state.times[i]), clamp(toY(value), -2000, 4000)]);
        return points.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
      });
      return panel;
    });
  }

  toX(time) {
    return this.left + (this.right - this.left) * fractionOf(this.state, time);
  }

  clips() {
    Figure.count = (Figure.count || 0) + 1;
    this.id = `clip${Figure.count}`;
    const defs = draw(this.svg, "defs");
    this.past = [];
    this.panels.forEach((panel, n) => {
      const size = { x: this.left, y: panel.top - 2, width: this.right - this.left, height: panel.bottom - panel.top + 4 };
      draw(draw(defs, "clipPath", { id: `${this.id}-${n}` }), "rect", size);
      this.past.push(draw(draw(defs, "clipPath", { id: `${this.id}-${n}p` }), "rect", size));
      panel.clip = `url(#${this.id}-${n})`;
      panel.pastClip = this.thumbnail ? panel.clip : `url(#${this.id}-${n}p)`;
    });
  }

  drawAxes({ axis, top, bottom, toY, last }, timeLabel) {
    const { svg, left, right, state } = this;
    if (this.thumbnail) return;
    const rows = Math.max(2, Math.floor((bottom - top) / 34));
    const marks = axis.log ? decades(axis.low, axis.high, rows).map((n) => [n, tickText(n)]) : ticks(axis.low, axis.high, rows).map((n) => [n, readable(n)]);
    for (const [value, text] of marks) {
      draw(svg, "line", { class: "rule", x1: left, x2: right, y1: toY(value), y2: toY(value) });
      draw(svg, "text", { x: left - 8, y: toY(value) + 4, "text-anchor": "end" }, text);
    }
    const [first, final] = [state.times[0], state.times.at(-1)];
    const columns = Math.max(2, Math.floor((right - left) / 70));
    const times = state.log_time
      ? decades(Math.log10(first), Math.log10(final), columns).map((n) => [10 ** n, tickText(n)])
      : ticks(first, final, columns).map((n) => [n, readable(n)]);
    for (const [time, text] of times) {
      const x = this.toX(time);
      draw(svg, "line", { class: "rule", x1: x, x2: x, y1: top, y2: bottom });
      if (last) draw(svg, "text", { x, y: bottom + 18, "text-anchor": "middle" }, text);
    }
    draw(svg, "line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
    draw(svg, "line", { class: "axis", x1: left, x2: left, y1: top, y2: bottom });
    draw(svg, "text", { class: "title", x: left - (this.narrow ? 34 : 46), y: top - 10 }, axis.label);
    if (last) draw(svg, "text", { x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, timeLabel);
  }

  drawCurves(panel) {
    const known = this.lookAt && panel.curves.some((curve) => curve.variable === this.lookAt);
    for (const [clip, kind] of [[panel.clip, " ahead"], [panel.pastClip, ""]]) {
      if (this.thumbnail && kind) continue;
      const group = draw(this.svg, "g", { "clip-path": clip, class: kind.trim() });
      panel.lines.forEach((points, n) => {
        const curve = panel.curves[n];
        const look = known ? (curve.variable === this.lookAt ? " strong" : " dim") : "";
        const attributes = { class: "curve" + look, d: pathOf(points), style: `stroke:${colourOf(curve, n)}` };
        draw(group, "path", this.thumbnail ? { ...attributes, pathLength: 1 } : attributes);
      });
    }
  }

  drawGhost(ghost) {
    if (ghost.curves.length !== this.panels.length || ghost.log_time !== this.state.log_time) return;
    this.panels.forEach((panel, n) => {
      const group = draw(this.svg, "g", { "clip-path": panel.clip });
      for (const curve of ghost.curves[n]) {
        const values = curve.values || unpack(curve.y);
        const points = values.map((value, i) => [this.toX(ghost.times[i]), clamp(panel.toY(value), -2000, 4000)]);
        draw(group, "path", { class: "ghost", d: pathOf(points.filter(([x, y]) => Number.isFinite(x + y))) });
      }
    });
    const x = this.right - 14;
    draw(this.svg, "text", { x, y: this.panels[0].top - 10, "text-anchor": "end" }, "dashed: before");
  }

  // Names stand at the right end of their curves, pushed apart where they would cover each other.
  drawNames() {
    for (const panel of this.panels) {
      const ends = panel.lines
        .map((points, n) => ({ n, end: points.length ? points.at(-1)[1] : panel.bottom }))
        .sort((a, b) => a.end - b.end)
        .map(({ n, end }) => ({ n, y: clamp(end, panel.top, panel.bottom) }));
      const gap = Math.min(15, (panel.bottom - panel.top + 14) / ends.length);
      ends.forEach((end, n) => n && (end.y = Math.max(end.y, ends[n - 1].y + gap)));
      const over = ends.length ? ends.at(-1).y - panel.bottom + 6 : 0;
      if (over > 0) {
        ends.at(-1).y -= over;
        for (let n = ends.length - 2; n >= 0; n--) ends[n].y = Math.min(ends[n].y, ends[n + 1].y - gap);
      }
      for (const { n, y } of ends) {
        const curve = panel.curves[n];
        const style = `fill:${colourOf(curve, n)}${this.narrow ? ";font-size:11px" : ""}`;
        draw(this.svg, "text", { class: "name", x: this.right + 11, y: y + 4, style }, curve.name);
      }
    }
  }

  inRange(time) {
    return time >= this.state.times[0] && time <= this.state.times.at(-1);
  }

  drawBands(layer) {
    for (const mark of this.state.marks.filter((one) => one.kind === "band")) {
      const [first, last] = [this.state.times[0], this.state.times.at(-1)];
      const [start, end] = [clamp(mark.start, first, last), clamp(mark.end, first, last)];
      if (!(end > start)) continue;
      const [x1, x2] = [this.toX(start), this.toX(end)];
      const look = mark.label === this.lookAt ? " look" : "";
      for (const panel of this.panels) {
        draw(layer, "rect", { class: "band" + look, x: x1, width: x2 - x1, y: panel.top, height: panel.bottom - panel.top });
      }
    }
    if (layer.childElementCount) this.svg.insertBefore(layer, this.svg.querySelector(".axis"));
  }

  drawMarks(layer) {
    // Bands were drawn behind the curves; everything else lies above them, in a layer of its own.
    const above = draw(this.svg, "g", { class: layer.getAttribute("class") });
    const labels = this.panels.map(
      (panel) => new Labels(above, panel.lines, { left: this.left, right: this.right, top: panel.top - 2, bottom: panel.bottom }),
    );
    // The lines of all ticks come before any label, which then covers no tick but its own if there is room.
    for (const mark of this.state.marks.filter((one) => one.kind === "tick")) this.drawTickLine(above, labels[0], mark);
    const order = ["point", "level", "slope", "band", "tick"];
    const marks = [...this.state.marks].sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind));
    for (const mark of marks) {
      const look = mark.label === this.lookAt ? " look" : "";
      if (mark.kind === "band") this.labelBand(labels, mark);
      else if (mark.kind === "tick") this.labelTick(labels[0], mark);
      else {
        const n = this.panels.findIndex((panel) => panel.curves.some((curve) => curve.variable === mark.variable));
        if (n >= 0) this[{ point: "drawPoint", level: "drawLevel", slope: "drawSlope" }[mark.kind]](above, labels[n], mark, this.panels[n], look);
      }
    }
  }

  labelBand(labels, mark) {
    const [first, last] = [this.state.times[0], this.state.times.at(-1)];
    const [start, end] = [clamp(mark.start, first, last), clamp(mark.end, first, last)];
    if (!(end > start)) return;
    const middle = (this.toX(start) + this.toX(end)) / 2;
    // In the first panel that has room for it.
    const shares = [0.12, 0.3, 0.5, 0.7, 0.9];
    const rows = this.panels.map(({ top, bottom }) => shares.map((share) => [middle, top + share * (bottom - top) + 4, "middle"]));
    const costs = labels.map((one, n) => one.best([mark.label], rows[n]).cost + 12 * n);
    const n = costs.indexOf(Math.min(...costs));
    labels[n].place([mark.label], rows[n], { class: "band-label halo" });
  }

  drawTickLine(layer, labels, mark) {
    if (!this.inRange(mark.time)) return;
    const x = this.toX(mark.time);
    const look = mark.label === this.lookAt ? " look" : "";
    for (const { top, bottom } of this.panels) draw(layer, "line", { class: "tick" + look, x1: x, x2: x, y1: top, y2: bottom });
    labels.avoid([[x, this.panels[0].top], [x, this.panels[0].bottom]]);
  }

  labelTick(labels, mark) {
    if (!this.inRange(mark.time)) return;
    const x = this.toX(mark.time);
    const { top, bottom } = this.panels[0];
    const rows = [0.05, 0.18, 0.31, 0.44, 0.6, 0.75, 0.95].map((share) => top + share * (bottom - top) + 8);
    labels.place([mark.label], rows.flatMap((y) => [[x + 5, y, "start"], [x - 5, y, "end"]]), { class: "mark-label halo" });
  }

  drawPoint(layer, labels, mark, panel, look) {
    const n = panel.curves.findIndex((curve) => curve.variable === mark.variable);
    if (!this.inRange(mark.time)) return;
    const curve = panel.curves[n];
    const y = panel.toY(valueAt(curve.values || unpack(curve.y), this.state.times, mark.time, this.state.log_time));
    if (!Number.isFinite(y)) return;
    const x = this.toX(mark.time);
    draw(layer, "circle", { class: "point" + look, cx: x, cy: y, r: look ? 7 : 5, style: `fill:${colourOf(curve, n)}` });
    const lines = mark.label.split(": ");
    const spots = [[-12, 4, "end"], [12, 18, "start"], [-12, 34, "end"], [12, 40, "start"], [-12, -18, "end"], [12, -18, "start"], [12, 62, "start"], [-12, 62, "end"]];
    labels.place(lines, spots.map(([dx, dy, anchor]) => [x + dx, y + dy, anchor]), { class: "mark-label halo", style: `fill:${colourOf(curve, n)}` });
  }

  drawLevel(layer, labels, mark, panel, look) {
    const value = panel.axis.log ? Math.log10(mark.value) : mark.value;
    if (!(value >= panel.axis.low && value <= panel.axis.high)) return;
    const y = panel.toY(value);
    draw(layer, "line", { class: "level" + look, x1: this.left, x2: this.right, y1: y, y2: y });
    const spots = [0.02, 0.35, 0.98].flatMap((share) => {
      const [x, anchor] = [this.left + share * (this.right - this.left), share < 0.2 ? "start" : share > 0.9 ? "end" : "middle"];
      return [[x, y - 6, anchor], [x, y + 16, anchor]];
    });
    labels.place([mark.label], spots, { class: "mark-label halo" });
  }

  // A power law, drawn a little above the curve that follows it.
  drawSlope(layer, labels, mark, panel, look) {
    const curve = panel.curves.find((one) => one.variable === mark.variable);
    const [start, end] = [Math.max(mark.start, this.state.times[0]), Math.min(mark.end, this.state.times.at(-1))];
    if (!(end > start)) return;
    const coordinate = valueAt(curve.values || unpack(curve.y), this.state.times, start, this.state.log_time);
    const points = [];
    for (let n = 0; n <= 24; n++) {
      const time = start * (end / start) ** (n / 24);
      const value = panel.axis.log ? coordinate - mark.exponent * Math.log10(time / start) : coordinate * (time / start) ** -mark.exponent;
      points.push([this.toX(time), panel.toY(value) - 10]);
    }
    draw(layer, "path", { class: "slope" + look, d: pathOf(points) });
    const [x, y] = points[12];
    labels.place([mark.label], [[x + 6, y - 8, "start"], [x - 8, y + 26, "end"], [x + 6, y - 26, "start"]], { class: "mark-label halo" });
  }

  drawCursor() {
    const [top, bottom] = [this.panels[0].top - 4, this.panels.at(-1).bottom];
    this.cursor = draw(this.svg, "g");
    draw(this.cursor, "line", { class: "cursor", x1: 0, x2: 0, y1: top, y2: bottom });
    draw(this.cursor, "path", { class: "handle", d: `M-7,${top - 9}h14l-7,10z` });
    this.dots = this.panels.map((panel) =>
      panel.curves.map((curve, n) => draw(this.svg, "circle", { class: "point", r: 4.5, style: `fill:${colourOf(curve, n)}` })),
    );
  }

  // Moves the cursor; what comes later is drawn faintly.
  moveTo(f) {
    if (!this.cursor || !this.panels) return;
    const x = this.left + f * (this.right - this.left);
    this.cursor.setAttribute("transform", `translate(${x.toFixed(1)},0)`);
    for (const rect of this.past) rect.setAttribute("width", Math.max(0, x - this.left).toFixed(1));
    const time = timeAt(this.state, f);
    this.panels.forEach((panel, p) =>
      panel.curves.forEach((curve, n) => {
        const y = panel.toY(valueAt(curve.values || unpack(curve.y), this.state.times, time, this.state.log_time));
        const seen = Number.isFinite(y) && y >= panel.top - 2 && y <= panel.bottom + 2;
        this.dots[p][n].setAttribute("visibility", seen ? "visible" : "hidden");
        if (seen) {
          this.dots[p][n].setAttribute("cx", x.toFixed(1));
          this.dots[p][n].setAttribute("cy", y.toFixed(1));
        }
      }),
    );
  }

  fractionAt(clientX) {
    return clamp((clientX - this.svg.getBoundingClientRect().left - this.left) / (this.right - this.left), 0, 1);
  }
}

