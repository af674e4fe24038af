// The system at one time ------------------------------------------------------------------------------------------

class SystemPicture {
  constructor(svg) {
    this.svg = svg;
  }

  show(view, time, log) {
    const { clientWidth: width, clientHeight: height } = this.svg;
    this.svg.replaceChildren();
    if (!view || !width) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    Object.assign(this, { view, width, height, time, log });
    this.box = { left: 34, right: width - 10, top: 12, bottom: height - 40 };
    this[view.kind]();
  }

  // One array at the present time, interpolated between its frames; arrays without time stand still.
  now(name) {
    const packed = this.view.arrays[name];
    if (!packed) return null;
    const values = unpack(packed);
    const frames = this.view.times.length;
    if (packed.shape[0] !== frames || (packed.shape.length < 2 && !["x", "y"].includes(name))) return values;
    const size = values.length / frames;
    const [place, share] = between(this.view.times, this.time, this.log);
    const next = Math.min(place + 1, frames - 1);
    return Array.from({ length: size }, (_, n) => values[place * size + n] * (1 - share) + values[next * size + n] * share);
  }

  scales(xLow, xHigh, yLow, yHigh, equal = false) {
    const { left, right, top, bottom } = this.box;
    let [sx, sy] = [(right - left) / (xHigh - xLow || 1), (bottom - top) / (yHigh - yLow || 1)];
    if (equal) sx = sy = Math.min(sx, sy);
    const [midX, midY] = [(left + right) / 2, (top + bottom) / 2];
    this.x = (value) => midX + (value - (xLow + xHigh) / 2) * sx;
    this.y = (value) => midY - (value - (yLow + yHigh) / 2) * sy;
  }

  axisTexts(xTexts, xLabel, yTexts = []) {
    const { left, right, bottom } = this.box;
    for (const [value, text] of xTexts) draw(this.svg, "text", { x: this.x(value), y: bottom + 16, "text-anchor": "middle" }, text);
    for (const [value, text] of yTexts) draw(this.svg, "text", { x: left - 4, y: this.y(value) + 4, "text-anchor": "end" }, text);
    if (xLabel) draw(this.svg, "text", { x: (left + right) / 2, y: bottom + 34, "text-anchor": "middle" }, xLabel);
  }

  filling() {
    const [position, density, learned] = [this.now("position"), this.now("density"), this.now("learned")];
    const [low, high] = [Math.min(...position), Math.max(...position)];
    this.scales(low, high, 0, Math.max(...density) || 1);
    const area = (heights) => {
      const points = position.map((x, n) => [this.x(x), this.y(heights[n])]);
      return `${pathOf(points)}L${this.x(high)},${this.y(0)}L${this.x(low)},${this.y(0)}Z`;
    };
    draw(this.svg, "path", { class: "frame", d: area(density) });
    draw(this.svg, "path", { class: "filled", d: area(density.map((value, n) => value * clamp(learned[n], 0, 1))) });
    const texts = this.view.log_x ? decades(low, high, 5).map((n) => [n, tickText(n)]) : ticks(low, high, 4).map((n) => [n, readable(n)]);
    this.axisTexts(texts, this.view.labels.x);
  }

  bars() {
    const [heights, target] = [this.now("height"), this.now("target")];
    const all = [...unpack(this.view.arrays.height), ...(target || [])].filter(Number.isFinite);
    const [low, high] = [Math.min(0, ...all), Math.max(0, ...all) || 1];
    this.scales(-0.5, heights.length - 0.5, low, high * 1.04);
    const half = 0.36 * (this.x(1) - this.x(0));
    heights.forEach((value, n) => {
      const rect = (v) => ({ x: this.x(n) - half, width: 2 * half, y: Math.min(this.y(v), this.y(0)), height: Math.abs(this.y(v) - this.y(0)) });
      if (Number.isFinite(value)) draw(this.svg, "rect", { ...rect(value), style: `fill:var(--c${heights.length > 8 ? 0 : n % 8})`, opacity: 0.85 });
      if (target) draw(this.svg, "rect", { class: "target", ...rect(target[n]) });
    });
    draw(this.svg, "line", { class: "axis", x1: this.box.left, x2: this.box.right, y1: this.y(0), y2: this.y(0) });
    const every = Math.ceil(heights.length / 10);
    const names = this.view.names.map((name, n) => [n, name]).filter(([n]) => n % every === 0);
    this.axisTexts(names, this.view.labels.index, ticks(low, high, 4).map((n) => [n, readable(n)]));
  }

  arrows() {
    const known = ["x", "target_x"].flatMap((name) => (this.view.arrays[name] ? unpack(this.view.arrays[name]) : []));
    const other = ["y", "target_y"].flatMap((name) => (this.view.arrays[name] ? unpack(this.view.arrays[name]) : []));
    const bound = (values, pick) => 1.12 * pick(0, ...values.filter(Number.isFinite));
    this.scales(bound(known, Math.min), bound(known, Math.max), bound(other, Math.min), bound(other, Math.max), true);
    draw(this.svg, "line", { class: "axis", x1: this.box.left, x2: this.box.right, y1: this.y(0), y2: this.y(0) });
    draw(this.svg, "line", { class: "axis", x1: this.x(0), x2: this.x(0), y1: this.box.top, y2: this.box.bottom });
    const [tx, ty] = [this.now("target_x"), this.now("target_y")];
    if (tx) tx.forEach((value, n) => this.arrow(value, ty[n], "var(--quiet)", "4 3"));
    const y = this.now("y");
    this.now("x").forEach((value, n) => this.arrow(value, y[n], `var(--c${n % 8})`, ""));
    this.axisTexts([], this.view.labels.x);
    if (this.view.labels.y) draw(this.svg, "text", { x: this.x(0) + 6, y: this.box.top + 4 }, this.view.labels.y);
  }

  arrow(x, y, colour, dashes) {
    if (!Number.isFinite(x + y)) return;
    const [x0, y0, x1, y1] = [this.x(0), this.y(0), this.x(x), this.y(y)];
    draw(this.svg, "line", { class: "arrow", x1: x0, y1: y0, x2: x1, y2: y1, style: `stroke:${colour}`, "stroke-dasharray": dashes });
    const angle = (Math.atan2(y1 - y0, x1 - x0) * 180) / Math.PI;
    draw(this.svg, "path", { d: "M0,0l-9,-5v10z", transform: `translate(${x1},${y1}) rotate(${angle})`, style: `fill:${colour}` });
  }

  path() {
    const [xs, ys] = [unpack(this.view.arrays.x), unpack(this.view.arrays.y)];
    const [lineX, lineY] = ["line_x", "line_y"].map((name) => this.view.arrays[name]);
    const bounds = (values) => [Math.min(0, ...values), Math.max(0, ...values)];
    const [[xLow, xHigh], [yLow, yHigh]] = [bounds(xs.filter(Number.isFinite)), bounds(ys.filter(Number.isFinite))];
    const pad = 0.3 * Math.max(xHigh - xLow, yHigh - yLow, 1e-9);
    this.scales(xLow - pad, xHigh + pad, yLow - pad, yHigh + pad, true);
    draw(this.svg, "line", { class: "axis", x1: this.box.left, x2: this.box.right, y1: this.y(0), y2: this.y(0) });
    draw(this.svg, "line", { class: "axis", x1: this.x(0), x2: this.x(0), y1: this.box.top, y2: this.box.bottom });
    if (lineX) {
      const size = lineX.shape[1];
      for (let n = 0; n < lineX.shape[0]; n++) this.stillLine(unpack(lineX).slice(n * size, (n + 1) * size), unpack(lineY).slice(n * size, (n + 1) * size));
    }
    const points = xs.map((x, n) => [this.x(x), this.y(ys[n])]);
    draw(this.svg, "path", { class: "path ahead", d: pathOf(points) });
    const [x, y] = [this.now("x")[0], this.now("y")[0]];
    const [place] = between(this.view.times, this.time, this.log);
    draw(this.svg, "path", { class: "path", d: pathOf([...points.slice(0, place + 1), [this.x(x), this.y(y)]]) });
    draw(this.svg, "circle", { class: "point", cx: this.x(x), cy: this.y(y), r: 6, style: "fill:var(--c1)" });
    this.axisTexts([], this.view.labels.x);
    if (this.view.labels.y) draw(this.svg, "text", { x: this.x(0) + 6, y: this.box.top + 4 }, this.view.labels.y);
  }

  stillLine(xs, ys) {
    const { left, right, top, bottom } = this.box;
    const points = xs.map((x, n) => [this.x(x), this.y(ys[n])]);
    const inside = points.filter(([x, y]) => x >= left && x <= right && y >= top && y <= bottom);
    if (inside.length > 1) draw(this.svg, "path", { class: "target", d: pathOf(inside) });
  }
}

