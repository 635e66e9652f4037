// Curves over the layers as a picture: one axis for all models, first and last values, one layer marked.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [340, 140, 46, 14, 22, 22];
const DIGIT = 7.5;  // about the width of a character of a label

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Round numbers, two to five of them, from the last at or below `low` to the first at or above `high`. */
function ticks(low, high) {
  if (low === high) [low, high] = [Math.min(low, 0), Math.max(high, 0)];  // of a constant curve, its distance from 0 says most
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / 2));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => span / size <= 3);
  const first = Math.floor(low / step);
  const last = Math.max(Math.ceil(high / step), first + 1);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}

/** Heights of a line (its points are [x, y]) from one x to another. */
function heights(line, from, to) {
  const at = (x) => {
    const next = line.findIndex((point) => point[0] >= x);
    if (next < 1) return next ? [] : [line[0][1]];  // beyond its last point there is no line
    const [[x0, y0], [x1, y1]] = [line[next - 1], line[next]];
    return [y0 + ((y1 - y0) * (x - x0)) / (x1 - x0)];
  };
  return Array.from({ length: 9 }, (_, part) => from + ((to - from) * part) / 8).flatMap(at);
}

/** Labels of the lines' first or last points, above or below each line: where no other line or label is. */
function labels(lines, end, text) {
  const placed = [];
  for (const { values, order, points } of [...lines].sort((one, other) => other.values.at(end) - one.values.at(end))) {
    const [words, [x, y]] = [text(values.at(end)), points.at(end)];
    const right = end ? x + RIGHT : LEFT + DIGIT * words.length;
    const span = [right - DIGIT * words.length, right];
    const own = [y, ...heights(points, ...span)];
    const others = lines.filter((one) => one.points !== points).flatMap((one) => heights(one.points, ...span));
    const free = (base) => base < HEIGHT - BOTTOM && others.every((height) => height < base - 13 || height > base + 4)
      && placed.every((one) => one.right < span[0] || one.left > right || Math.abs(one.base - base) > 12);
    const places = [Math.min(...own) - 8, Math.max(...own) + 17].sort((one, other) => Math.abs(one - y) - Math.abs(other - y));
    const base = places.find(free) ?? places[0];
    placed.push({ base, left: span[0], right, parts: [svg("rect", { x: span[0], y: base - 11, width: right - span[0], height: 14, class: "behind" }),
      svg("text", { x: end ? right : LEFT, y: base, class: `${end ? "end" : "start"} line-${order}` }, words)] });
  }
  return placed.flatMap((one) => one.parts);
}

/** `lines` are {values, order}; a click on a layer calls `choose`. */
export function curves(lines, layers, marked, text, label, choose) {
  const all = lines.flatMap(({ values }) => values);
  const axis = ticks(Math.min(...all), Math.max(...all));
  const [low, high] = [axis[0], axis.at(-1)];
  const step = layers > 1 ? (WIDTH - LEFT - RIGHT) / (layers - 1) : WIDTH - LEFT - RIGHT;
  const x = (index) => (layers > 1 ? LEFT + index * step : (LEFT + WIDTH - RIGHT) / 2);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const parts = axis.flatMap((value) => [svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }),
    svg("text", { x: LEFT - 8, y: y(value) + 4, class: "end" }, text(value))]);
  parts.push(svg("line", { x1: x(marked), x2: x(marked), y1: 4, y2: HEIGHT - BOTTOM + 4, class: "here" }));
  for (let index = 0; index < layers; index++) {
    const words = layers <= 8 || index % 2 === 0 ? index + 1 : "";
    parts.push(svg("text", { x: x(index), y: HEIGHT - 4, class: `middle${index === marked ? " chosen" : ""}` }, words));
  }
  const drawn = lines.map((line) => ({ ...line, points: line.values.map((value, index) => [x(index), y(value)]) }));
  for (const { points, order } of drawn) {
    const here = Math.min(marked, points.length - 1);
    parts.push(svg("polyline", { points: points.join(" "), class: `line-${order}` }));
    points.forEach(([cx, cy], index) => parts.push(svg("circle", { cx, cy, r: index === here ? 5 : 2.5, class: `line-${order}` })));
  }
  for (const end of [0, -1]) parts.push(...labels(drawn, end, text));
  for (let index = 0; index < layers; index++) {
    const [left, right] = [Math.max(x(index) - step / 2, 0), Math.min(x(index) + step / 2, WIDTH)];
    const hit = svg("rect", { x: left, y: 0, width: right - left, height: HEIGHT, class: "hit", "data-layer": index + 1 }, svg("title", {}, `Layer ${index + 1}`));
    hit.addEventListener("click", () => choose(index + 1));
    parts.push(hit);
  }
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img", "aria-label": label }, ...parts);
}
