// Where pictures come from: samples, files, the clipboard, and anything dropped on the page.

import { element } from "./drawing.js";
import { complain } from "./messages.js";
import { Problem } from "./requests.js";
import { $, about, state } from "./state.js";
import { number, sentence } from "./words.js";

const { upload, pixels, formats } = about.limits;

export function setUpSamples(open) {
  $("samples").classList.toggle("many", about.samples.length > 5);
  for (const { name, title: words } of about.samples) {
    const title = sentence(words);
    const image = element("img", { src: `/api/samples/${encodeURIComponent(name)}`, alt: "" });
    const button = element("button", { type: "button", "aria-pressed": "false", "data-name": name, title, "aria-label": title }, image);
    button.addEventListener("click", () => open({ title, sample: name }));
    $("samples").append(button);
  }
}

const fit = () => document.querySelector("#fit input:checked").value;

export function listenForPictures(open) {
  /** A copy in memory is opened: a folder has no content, and a file can change or go while its picture is shown. */
  const openFile = async (file) => {
    if (!file) return;
    const refuse = (words) => complain($("picture-section"), new Problem(`the file ${file.name} ${words}`));
    if (file.size > upload) return refuse(`has ${number(file.size / 1e6, 3)} MB; the limit is ${upload / 1e6} MB: send a smaller picture.`);
    const bytes = await file.arrayBuffer().catch(() => null);
    if (!bytes) return refuse("can't be read; choose an image file.");
    if (!bytes.byteLength) return refuse("is empty; choose another file.");
    open({ title: file.name || "The pasted picture", file: new Blob([bytes]), fit: fit() });
  };
  $("file-limits").textContent = `${formats.join(", ")} up to ${upload / 1e6} MB and ${pixels / 1e6} megapixels`;
  $("file").addEventListener("change", () => {
    openFile($("file").files[0]);
    $("file").value = "";  // the same file can be chosen again
  });
  $("fit").addEventListener("change", () => { if (state.picture?.file) open({ ...state.picture, fit: fit() }); });

  const fileOf = (event) => (event.dataTransfer ?? event.clipboardData)?.files[0];
  const light = (on) => document.body.classList.toggle("dropping", on);
  addEventListener("paste", (event) => openFile(fileOf(event)));
  addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;  // words and links are not for this page
    event.preventDefault();
    light(true);
  });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) light(false); });
  addEventListener("drop", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    light(false);
    openFile(fileOf(event));
  });
}
