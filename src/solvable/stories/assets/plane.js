// The plane: a quantity over two controls in colours, with contours, names of regions, and the current setting, which
// can be dragged where its axes are sliders of the story.
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];

function viridis(share) {
  const place = clamp(share, 0, 1) * (VIRIDIS.length - 1);
  const n = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const part = (k) => parseInt(VIRIDIS[n + k].slice(1), 16);
  return [16, 8, 0].map((shift) => Math.round(((part(0) >> shift) & 255) * (n + 1 - place) + ((part(1) >> shift) & 255) * (place - n)));
}

// Where the axes have numbers.
const SHARES = [0, 0.5, 1];

class PlanePicture {
  constructor(svg, plane, onMove) {
    Object.assign(this, { svg, plane, onMove });
    this.image = this.colours();
    let held = false;
    const move = (event, final) => {
      const box = svg.getBoundingClientRect();
      const across = clamp((event.clientX - box.left - this.left) / this.width, 0, 1);
      const up = clamp((this.top + this.height - (event.clientY - box.top)) / this.height, 0, 1);
      this.onMove([this.value("x", across), this.value("y", up)], final);
    };
    if (!plane.axes.some(({ slider }) => slider !== null)) return;
    svg.classList.add("draggable");
    svg.addEventListener("pointerdown", (event) => {
      held = true;
      svg.setPointerCapture(event.pointerId);
      move(event, false);
    });
    svg.addEventListener("pointermove", (event) => held && move(event, false));
    svg.addEventListener("pointerup", (event) => {
      if (held) move(event, true);
      held = false;
    });
    svg.addEventListener("pointercancel", () => (held = false));
  }

  scale(axis) {
    return this.plane[`${axis}_log`] ? [Math.log, Math.exp] : [(v) => v, (v) => v];
  }

  // Fraction of the side at a value, and the value at a fraction: all cells have the same size.
  fraction(axis, value) {
    const [scaled] = this.scale(axis);
    const grid = this.plane[axis].map(scaled);
    const [place, share] = between(grid, clamp(scaled(value), grid[0], grid.at(-1)), false);
    return (place + share + 0.5) / grid.length;
  }

  value(axis, fraction) {
    const [scaled, back] = this.scale(axis);
    const grid = this.plane[axis].map(scaled);
    const place = clamp(fraction * grid.length - 0.5, 0, grid.length - 1);
    const n = Math.min(Math.floor(place), Math.max(grid.length - 2, 0));
    return back(grid[n] + (place - n) * ((grid[n + 1] ?? grid[n]) - grid[n]));
  }

  colours() {
    const { z } = this.plane;
    const [rows, columns] = z.shape;
    const canvas = make("canvas", { width: columns, height: rows });
    const context = canvas.getContext("2d");
    const picture = context.createImageData(columns, rows);
    unpack(z).forEach((value, n) => {
      const at = 4 * ((rows - 1 - Math.floor(n / columns)) * columns + (n % columns));
      const colour = Number.isNaN(value) ? [128, 132, 140, 110] : [...viridis((value - z.low) / (z.high - z.low || 1)), 255];
      picture.data.set(colour, at);
    });
    context.putImageData(picture, 0, 0);
    return canvas.toDataURL();
  }

  // Draws the plane with the current setting at two values.
  show(values) {
    const { svg, plane } = this;
    const [whole, tall] = [svg.clientWidth, svg.clientHeight];
    if (!whole) return;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${whole} ${tall}`);
    const texts = { x: wrapped(plane.x_label, (whole - 132) / 6), y: wrapped(plane.y_label, (tall - 90) / 6), title: wrapped(plane.label, (whole - 30) / 6.6) };
    const room = (values) => 6.8 * Math.max(...values.map((text) => text.length));
    const left0 = 14 + 13 * texts.y.length + room(SHARES.map((share) => readable(this.value("y", share), 2)));
    Object.assign(this, { texts, left: left0, top: 10 + 14 * texts.title.length });
    Object.assign(this, { width: whole - left0 - 28 - room(this.ends()), height: tall - this.top - 30 - 13 * texts.x.length });
    const { left, top, width, height } = this;
    const toX = (f) => left + f * width;
    const toY = (f) => top + (1 - f) * height;
    draw(svg, "image", { href: this.image, x: left, y: top, width, height, preserveAspectRatio: "none", style: "image-rendering: pixelated" });
    const named = [];
    for (const line of plane.contours) {
      draw(svg, "path", { class: "contour", d: pathOf(line.x.map((f, n) => [toX(f), toY(line.y[n])])) });
      const middle = Math.floor(line.x.length / 2);
      if (line.text) named.push([line.text, [middle, Math.floor(middle / 2), Math.floor(1.5 * middle)].map((n) => [toX(line.x[n]), toY(line.y[n]) + 4])]);
    }
    this.drawNames(plane.regions.map((one) => [one.text, [[toX(one.x), toY(one.y) + 4]], " region"]), named);
    this.drawAxes(toX, toY);
    this.drawBar();
    const [x, y] = [toX(this.fraction("x", values[0])), toY(this.fraction("y", values[1]))];
    for (const name of ["under", "over"]) draw(svg, "circle", { class: `here ${name}`, cx: x, cy: y, r: 7 });
    const said = plane.axes.map((_, n) => `${plane["xy"[n] + "_label"]} ${readable(values[n])}`).join(", ");
    svg.setAttribute("aria-label", `${plane.label} over ${plane.x_label} and ${plane.y_label}. The current setting: ${said}.`);
  }

  // Regions, then contours: a name that would cover another one or leave the picture is left out.
  drawNames(regions, contours) {
    const { left, top, width, height } = this;
    const taken = [];
    for (const [text, places, kind = ""] of [...regions, ...contours]) {
      const half = text.length * (kind ? 4.2 : 3.6) + 3;
      const free = places.find(([x, y]) => x - half >= left && x + half <= left + width && y - 12 >= top && y <= top + height &&
        taken.every((other) => Math.abs(other.x - x) > other.half + half || Math.abs(other.y - y) > 15));
      const [x, y] = free ?? places[0];
      if (!free && !kind) continue;
      taken.push({ x, y, half });
      draw(this.svg, "text", { class: "plane-name" + kind, x, y }, text);
    }
  }

  drawAxes(toX, toY) {
    const { svg, left, top, width, height } = this;
    for (const share of SHARES) {
      draw(svg, "text", { x: toX(share), y: top + height + 15, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" }, readable(this.value("x", share), 2));
      draw(svg, "text", { x: left - 5, y: toY(share) + (share === 1 ? 10 : share === 0 ? 0 : 4), "text-anchor": "end" }, readable(this.value("y", share), 2));
    }
    this.texts.x.forEach((text, n) => draw(svg, "text", { x: left + width / 2, y: top + height + 30 + 13 * n, "text-anchor": "middle" }, text));
    this.texts.y.forEach((text, n) => {
      const [x, y] = [11 + 13 * n, top + height / 2];
      draw(svg, "text", { x, y, "text-anchor": "middle", transform: `rotate(-90 ${x} ${y})` }, text);
    });
  }

  // The numbers at both ends of the colour bar.
  ends() {
    const { wide, z } = this.plane;
    return [z.high, z.low].map((level) => readable(wide ? 10 ** level : level, 2));
  }

  drawBar() {
    const { svg, top, height } = this;
    const x = this.left + this.width + 10;
    const steps = 32;
    for (let n = 0; n < steps; n++) {
      draw(svg, "rect", { x, y: top + (height * (steps - 1 - n)) / steps, width: 10, height: height / steps + 0.5, fill: `rgb(${viridis(n / (steps - 1))})` });
    }
    const [high, low] = this.ends();
    draw(svg, "text", { x: x + 14, y: top + 10 }, high);
    draw(svg, "text", { x: x + 14, y: top + height }, low);
    this.texts.title.forEach((text, n) => draw(svg, "text", { class: "title", x: 4, y: 12 + 14 * n }, text));
  }
}

const short = (text, most) => (text.length > most ? `${text.slice(0, Math.max(1, Math.floor(most) - 1))}…` : text);

// A text in at most two lines of so many characters.
function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (longer.length > most && lines.at(-1) && lines.length < 2) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines.map((line) => short(line, most));
}
