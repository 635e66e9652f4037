// /openapi.json for people.

import { element } from "./drawing.js";

const api = await fetch("/openapi.json").then((response) => response.json());
const lookup = (schema) => (schema?.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema);

/** A schema's type in a word or two. */
function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.join(" or ");
  if (schema.const) return schema.const;
  if (schema.prefixItems) return `[${schema.prefixItems.map(kind).join(", ")}]`;
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  if (schema.additionalProperties) return `object of ${kind(schema.additionalProperties)}`;
  return schema.type ?? "";
}

const names = ["ServedModel", "SampleName", "RequestLimits", "QuantityWords", "TokenComponents"];

/** A type, with links to the parts of the answers that have a section of their own. */
function linked(text) {
  return text.split(/\b/).map((word) => (names.includes(word) ? element("a", { href: `#${word}` }, word) : word));
}

/** Words with `code` in them. */
function words(text = "") {
  return text.split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part));
}

function table(head, rows) {
  const line = (cell, cells) => element("tr", {}, ...cells.map((parts) => element(cell, {}, ...[parts].flat())));
  const whole = element("table", {}, element("thead", {}, line("th", head)), element("tbody", {}, ...rows.map((row) => line("td", row))));
  return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": head.join(", ") }, whole);
}

function fields(schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => [element("code", {}, name), linked(kind(field)), words(field.description ?? lookup(field)?.description)]);
  return table(["field", "kind", "meaning"], rows);
}

/** What an address or a name is called in a link to it. */
const anchor = (name) => name.replace(/\W+/g, "-").replace(/^-|-$/g, "");

function operation(path, method, { summary, description, parameters = [], requestBody, responses }) {
  const address = element("code", {}, path);
  const parts = [element("h2", { id: anchor(path) }, element("span", { class: "method" }, method.toUpperCase()), address), element("p", {}, summary + ".")];
  if (description) parts.push(element("p", {}, ...words(description)));
  const given = parameters.filter((one) => one.required).map((one) => `${one.name}=1`).join("&");
  if (requestBody) {
    const query = ["ratio", "seed"].every((name) => parameters.some((one) => one.name === name)) ? "ratio=0.75&seed=0" : given;
    const out = responses[200].content["image/png"] ? " --output answer.png" : "";
    parts.push(element("pre", { tabindex: "0" }, `curl -F picture=@photo.jpg '${location.origin}${path}${query && `?${query}`}'${out}`));
  }
  if (parameters.length) {
    parts.push(element("h3", {}, "Parameters"), table(["name", "kind", "default", "meaning"], parameters.map((one) => [
      element("code", {}, one.name), kind(one.schema), one.required ? "required" : String(one.schema.default ?? ""), words(one.description),
    ])));
  }
  if (requestBody) parts.push(element("h3", {}, "Body"), element("p", {}, ...words(requestBody.description)));
  const schema = lookup(responses[200].content["application/json"]?.schema);
  parts.push(element("h3", {}, "Answer"));
  parts.push(schema?.properties ? fields(schema) : element("p", {}, responses[200].description));
  const problems = Object.entries(responses).filter(([status]) => status !== "200");
  if (problems.length) {
    parts.push(element("h3", {}, "Or one sentence in "), table(["status", "when"], problems.map(([status, { description: when }]) => [status, words(when)])));
    parts.at(-2).append(element("code", {}, "error"));
  }
  return element("section", {}, ...parts);
}

document.getElementById("lead").textContent = `${api.info.description} Version ${api.info.version}.`;
const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, given]) => operation(path, method, given)));
const used = names.map((name) => element("section", {}, element("h2", { id: anchor(name) }, element("code", {}, name)),
  element("p", {}, api.components.schemas[name].description), fields(api.components.schemas[name])));
const list = (title, entries) => element("div", {}, element("h3", {}, title), element("ul", {}, ...entries));
const entry = (name, words) => element("li", {}, element("a", { href: `#${anchor(name)}` }, element("code", {}, name)), ` ${words}`);
const contents = element("nav", { class: "contents", "aria-labelledby": "contents" }, element("h2", { id: "contents" }, "Contents"),
  list("Addresses", Object.entries(api.paths).map(([path, methods]) => entry(path, Object.values(methods)[0].summary + "."))),
  list("Parts of the answers", names.map((name) => entry(name, api.components.schemas[name].description))));
document.getElementById("operations").append(contents, ...operations, ...used);
document.getElementById(location.hash.slice(1))?.scrollIntoView();
