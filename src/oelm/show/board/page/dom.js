// Elements made of text: nothing that was stored is ever read as markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (["value", "checked"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child).replace(/(\d) %/g, "$1\u00a0%")));
  }
}

export function fill(element, ...children) {
  keepingFocus(element, () => {
    element.replaceChildren();
    add(element, children);
  });
  return element;
}

const NAMES = ["id", "name", "href", "data-arm", "aria-label"]; // of which the first that an element has says which it is

// Change what is in an element; whatever in it had the focus, or what is made anew in its place, has it afterwards.
export function keepingFocus(element, change) {
  const focused = document.activeElement;
  if (!focused || focused === element || !element.contains(focused)) { change(); return; }
  const name = NAMES.find((each) => focused.hasAttribute(each));
  const tag = focused.localName;
  const alike = () => [...element.querySelectorAll(name ? `${tag}[${name}="${CSS.escape(focused.getAttribute(name))}"]` : tag)];
  const before = alike();
  change();
  if (document.activeElement === focused) return;
  const after = alike();
  const found = focused.isConnected ? focused : name || after.length === before.length ? after[before.indexOf(focused)] ?? after[0] : null;
  found?.focus({ preventScroll: true });
}

// Change what is in an element; what in it was unfolded is so afterwards.
export function keepingOpen(element, change) {
  const all = () => [...element.querySelectorAll("details")].map((each) => [each, `${each.closest("section")?.getAttribute("aria-labelledby")} ${each.querySelector("summary")?.textContent}`]);
  const open = new Set(all().filter(([each]) => each.open).map(([, name]) => name));
  change();
  for (const [each, name] of all()) if (open.has(name)) each.open = true;
}

// ---- Words ----

let words = {};

export function setWords(found) { words = found; }

export function say(code, facts = {}) {
  const text = words[code] ?? code;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in facts ? String(facts[name]) : whole));
}

// ---- Numbers ----

export const NONE = "–";

export function number(value, digits = 4) {
  if (typeof value !== "number") return NONE;
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4)) return signed(value.toExponential(2));
  return signed(value.toFixed(digits));
}

export function short(value) {
  if (typeof value !== "number") return NONE;
  return signed(String(Number(value.toPrecision(3))));
}

// With the sign that reports have.
function signed(text) { return text.replace(/^-/, "\u2212"); }

export function whole(value) {
  return typeof value === "number" ? value.toLocaleString("en-US") : NONE;
}

export function duration(seconds) {
  if (typeof seconds !== "number") return NONE;
  if (seconds < 60) return `${Math.round(seconds)} ${say("unit.seconds")}`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} ${say("unit.minutes")}`;
  const rest = String(minutes % 60).padStart(2, "0");
  return `${whole(Math.floor(minutes / 60))} ${say("unit.hours")} ${rest} ${say("unit.minutes")}`;
}

export function moment(seconds) {
  if (!seconds) return NONE;
  const at = new Date(seconds * 1000);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function bytes(count) {
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${count} B`;
}

// ---- Parts that several views have ----

export function stateWord(state, why = null) {
  return h("span", { class: `state-${state}` }, why || say(`state.${state}`));
}

export function section(title, ...children) {
  const id = `section-${title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-")}`;
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

const LONGEST_LINE = 24; // letters of a text that stands in one line however narrow the page is

export function plainTable(header, rows, { caption = null, numbers = 0 } = {}) {
  const kind = (column) => (column >= header.length - numbers ? "number" : null);
  const isLong = (cell) => typeof cell === "string" && cell.length > LONGEST_LINE;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption ?? header.join(", ") },
    h("table", {},
      caption ? h("caption", {}, caption) : null,
      h("thead", {}, h("tr", {}, header.map((text, column) => h("th", { scope: "col", class: kind(column) }, text)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, column) => h("td", { class: kind(column) ?? (isLong(cell) ? "wrapped" : "tight") }, cell)))))));
}

export function announce(text) {
  document.getElementById("announcements").textContent = text;
}

// The numbers of a chart as text, below it; whether it is open stays.
export function numbersBelow(details, header, rows) {
  const numbers = header.length - 1;
  fill(details, h("summary", {}, say("card.numbers")), rows.length ? plainTable(header, rows, { numbers }) : say("curves.none"));
}

// At most one call in so many milliseconds, and one after the last; one that takes long is followed by a longer pause.
export function throttled(action, pause) {
  let timer = null;
  let rest = pause;
  let last = 0;
  const run = () => {
    timer = null;
    const begun = performance.now();
    action();
    last = performance.now();
    rest = Math.max(pause, 8 * (last - begun));
  };
  return () => {
    if (timer === null) timer = setTimeout(run, Math.max(0, rest - (performance.now() - last)));
  };
}
