// A table that stays while its rows change: sorted by any column, filtered by text, rows kept by their keys.

import { fill, h, keepingFocus, say } from "./dom.js";
import * as address from "./address.js";

const FIRST_ROWS = 100; // more are shown on demand

export class Table {
  // columns: { key, title, cell(row) -> text or node, order(row) -> what it is sorted by, number, wide, isNeedless(row) }
  constructor(columns, { label, keyOf, textOf }) {
    Object.assign(this, { columns, keyOf, textOf, rows: [], known: new Map(), texts: new WeakMap(), showsAll: false });
    this.body = h("tbody");
    this.heads = columns.map((column) => this.head(column));
    this.count = h("span", { class: "soft" });
    this.more = h("button", { type: "button", onclick: () => { this.showsAll = true; this.refresh(); } }, say("all"));
    this.filter = h("input", {
      type: "search", value: address.get("filter"), placeholder: say("runs.filter"), "aria-label": say("runs.filter"),
      oninput: () => { address.change({ filter: this.filter.value }); this.refresh(); },
    });
    this.table = h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.element = h("div", {},
      h("div", { class: "controls" }, this.filter, this.count, this.more),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, this.table));
  }

  head(column) {
    const sort = () => {
      const isDown = address.get("sort") === column.key && address.get("down") !== "1";
      address.change({ sort: column.key, down: isDown });
      this.refresh();
    };
    const title = column.order ? h("button", { type: "button", onclick: sort }, column.title) : column.title;
    return h("th", { scope: "col", class: `column-${column.key}${column.number ? " number" : ""}`, "data-key": column.key }, title);
  }

  show(rows) { this.rows = rows; this.refresh(); }

  refresh() {
    const wanted = this.filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const texts = (row) => this.textOf(row).toLowerCase();
    const kept = this.rows.filter((row) => wanted.every((word) => texts(row).includes(word)));
    const column = this.columns.find((each) => each.key === address.get("sort") && each.order);
    const isDown = address.get("down") === "1";
    if (column) kept.sort((one, other) => compared(column.order(one), column.order(other)) * (isDown ? -1 : 1));
    for (const head of this.heads) {
      if (column && head.dataset.key === column.key) head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    const shown = this.showsAll ? kept : kept.slice(0, FIRST_ROWS);
    this.count.textContent = say(this.rows.length === 1 ? "runs.shown.one" : "runs.shown", { shown: shown.length, all: this.rows.length });
    hideNeedless(this.table, this.columns.filter((each) => each.isNeedless).map((each) => [each.key, this.rows.every(each.isNeedless)]));
    this.more.hidden = shown.length === kept.length;
    keepingFocus(this.body, () => this.place(shown.map((row) => this.line(row))));
  }

  // Only what is not in its place is moved, so that focus and selection stay.
  place(lines) {
    const kept = new Set(lines);
    for (const line of [...this.body.children]) if (!kept.has(line)) line.remove();
    lines.forEach((line, at) => {
      if (this.body.children[at] !== line) this.body.insertBefore(line, this.body.children[at] ?? null);
    });
  }

  line(row) {
    const key = this.keyOf(row);
    const line = this.known.get(key) ?? h("tr", {}, this.columns.map((column) => (
      h("td", { class: `column-${column.key} ${["number", "wide", "tight", "broad"].find((kind) => column[kind]) ?? ""}`.trim() }))));
    this.known.set(key, line);
    const texts = JSON.stringify(row);
    if (this.texts.get(line) !== texts) {
      this.texts.set(line, texts);
      this.columns.forEach((column, at) => {
        const cell = line.children[at];
        const content = column.cell(row);
        if (!(column.stays && cell.hasChildNodes())) fill(cell, content);
      });
    }
    return line;
  }
}

// Columns in which no row says anything, such as the time left of what has ended.
export function hideNeedless(table, columns) {
  for (const [key, isNeedless] of columns) table.classList.toggle(`without-${key}`, isNeedless);
}

function compared(one, other) {
  const isNothing = (value) => value === null || value === undefined || value === "";
  if (isNothing(one) || isNothing(other)) return isNothing(one) - isNothing(other);
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}
