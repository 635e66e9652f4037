// Numbers to pictures: maps of patches on a canvas, curves over the layers.

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
const [WIDTH, HEIGHT, MARGIN] = [220, 64, 7];

/** A curve over the layers with one layer marked. */
export function curve(values, marked, label) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (index) => MARGIN + (values.length > 1 ? (index / (values.length - 1)) * (WIDTH - 2 * MARGIN) : WIDTH / 2 - MARGIN);
  const y = (value) => HEIGHT - MARGIN - (high > low ? (value - low) / (high - low) : 0.5) * (HEIGHT - 2 * MARGIN);
  const drawn = document.createElementNS(SVG, "svg");
  const add = (name, attributes) => {
    const part = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    drawn.append(part);
  };
  drawn.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  drawn.setAttribute("class", "curve");
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", label);
  add("line", { x1: x(marked), x2: x(marked), y1: 0, y2: HEIGHT, class: "here" });
  add("polyline", { points: values.map((value, index) => `${x(index)},${y(value)}`).join(" ") });
  values.forEach((value, index) => {
    add("circle", { cx: x(index), cy: y(value), r: index === marked ? 5 : 2.5, class: index === marked ? "marked" : "" });
  });
  return drawn;
}
