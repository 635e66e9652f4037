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
const [WIDTH, HEIGHT, SIDE, TOP, BOTTOM] = [340, 120, 14, 24, 20];

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/**
 * Curves over the layers on one axis, with their first and last values and one layer marked.
 * `lines` are {values, order, text}; a click on a layer calls `choose`.
 */
export function curves(lines, layers, marked, text, label, choose) {
  const all = lines.flatMap(({ values }) => values);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const x = (index) => (layers > 1 ? SIDE + (index / (layers - 1)) * (WIDTH - 2 * SIDE) : WIDTH / 2);
  const y = (value) => HEIGHT - BOTTOM - (high > low ? (value - low) / (high - low) : 0.5) * (HEIGHT - TOP - BOTTOM);
  const step = layers > 1 ? (WIDTH - 2 * SIDE) / (layers - 1) : WIDTH;
  const parts = [svg("line", { x1: x(marked), x2: x(marked), y1: 4, y2: HEIGHT - BOTTOM + 4, class: "here" }),
    svg("text", { x: 0, y: HEIGHT - 3 }, "layer 1"), svg("text", { x: WIDTH, y: HEIGHT - 3, class: "end" }, `layer ${layers}`)];
  for (const { values, order } of lines) {
    const here = Math.min(marked, values.length - 1);
    parts.push(svg("polyline", { points: values.map((value, index) => `${x(index)},${y(value)}`).join(" "), class: `line-${order}` }));
    values.forEach((value, index) => parts.push(svg("circle", { cx: x(index), cy: y(value), r: index === here ? 5 : 2.2, class: `line-${order}` })));
  }
  const ends = [[0, (values) => values[0], ""], [WIDTH, (values) => values.at(-1), "end"]];
  for (const [at, value, side] of ends) {
    let above = -Infinity;  // the highest first; one that would touch it goes below its own point
    for (const { values, order } of [...lines].sort((one, other) => value(other.values) - value(one.values))) {
      const height = y(value(values));
      const clash = height - above < 16;
      const place = clash ? Math.min(height + 18, HEIGHT - BOTTOM + 2) : height - 8;
      parts.push(svg("text", { x: at, y: place, class: `${side} line-${order}` }, text(value(values))));
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
