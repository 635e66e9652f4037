// Numbers as pictures: maps of patches on a canvas.

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
