// Runs that are chosen to be compared: part of the address, and kept on the way from view to view.

import { h, say } from "./dom.js";
import * as address from "./address.js";

export const MOST_COMPARED = 20; // as many as the server takes

export class Choice {
  constructor() {
    this.ids = new Set(address.all("choose"));
    this.link = h("a", {});
    this.none = h("button", { type: "button", onclick: () => this.clear() }, say("runs.choose_none"));
    this.most = h("span", { class: "soft", role: "status" });
    this.element = h("p", { class: "controls" }, this.link, this.none, this.most);
    this.show();
  }

  // What chooses a run in a table.
  box(row) {
    const box = h("input", { type: "checkbox", checked: this.ids.has(row.id), "aria-label": say("runs.choose", { run: row.run }), onchange: () => this.take(row.id, box) });
    return box;
  }

  take(id, box) {
    if (!box.checked) this.ids.delete(id);
    else if (this.ids.size < MOST_COMPARED) this.ids.add(id);
    else box.checked = false;
    this.store();
  }

  clear() {
    this.ids.clear();
    for (const box of document.querySelectorAll("td.column-choose input")) box.checked = false;
    this.store();
  }

  store() {
    address.change({ choose: [...this.ids] });
    this.show();
  }

  show() {
    const { size } = this.ids;
    this.element.hidden = !size;
    this.link.hidden = size < 2;
    this.link.textContent = say("runs.compare", { count: size });
    this.link.setAttribute("href", address.to({ compare: [...this.ids] }));
    this.most.textContent = size < 2 ? say("compare.few") : size < MOST_COMPARED ? "" : say("compare.most", { most: MOST_COMPARED });
  }
}
