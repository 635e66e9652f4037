// Numbers as pictures: maps of patches on a canvas, curves over the layers.

const RAMP = [[13, 17, 58], [66, 34, 125], [149, 44, 119], [222, 81, 81], [251, 158, 75], [252, 236, 164]];

/** A colour for a number from 0 to 1, darkest at 0. */
export function ramp(value) {
  const place = Math.min(Math.max(value, 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(place), RAMP.length - 2);
  return RAMP[low].map((from, channel) => Math.round(from + (RAMP[low + 1][channel] - from) * (place - low)));
}

/** One pixel for each patch; null is transparent. The style sheet enlarges it. */
export function patches(canvas, rows, label) {
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  const image = new ImageData(canvas.width, canvas.height);
  rows.flat().forEach((colour, index) => { if (colour) image.data.set([...colour, 255], 4 * index); });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [340, 140, 46, 14, 22, 22];

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Round numbers, two to five of them, from the last at or below `low` to the first at or above `high`. */
function ticks(low, high) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / 2));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => span / size <= 3);
  const first = Math.floor(low / step);
  const last = Math.max(Math.ceil(high / step), first + 1);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}

/**
 * Curves over the layers on one axis, with their first and last values and one layer marked.
 * `lines` are {values, order}; a click on a layer calls `choose`.
 */
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
  for (const { values, order } of lines) {
    const here = Math.min(marked, values.length - 1);
    parts.push(svg("polyline", { points: values.map((value, index) => `${x(index)},${y(value)}`).join(" "), class: `line-${order}` }));
    values.forEach((value, index) => parts.push(svg("circle", { cx: x(index), cy: y(value), r: index === here ? 5 : 2.5, class: `line-${order}` })));
  }
  for (const end of [0, -1]) {
    let above = -Infinity;  // the highest first; one that would touch it goes below its own point
    for (const { values, order } of [...lines].sort((one, other) => other.values.at(end) - one.values.at(end))) {
      const [value, height] = [values.at(end), y(values.at(end))];
      const place = height - above < 18 ? height + 18 : height - 8;
      const [at, side] = end ? [x(values.length - 1) + RIGHT, "end"] : [LEFT, "start"];
      parts.push(svg("text", { x: at, y: place, class: `${side} line-${order}` }, text(value)));
      above = height;
    }
  }
  for (let index = 0; index < layers; index++) {
    const [left, right] = [Math.max(x(index) - step / 2, 0), Math.min(x(index) + step / 2, WIDTH)];
    const hit = svg("rect", { x: left, y: 0, width: right - left, height: HEIGHT, class: "hit", "data-layer": index + 1 }, svg("title", {}, `Layer ${index + 1}`));
    hit.addEventListener("click", () => choose(index + 1));
    parts.push(hit);
  }
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img", "aria-label": label }, ...parts);
}
