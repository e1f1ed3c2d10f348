// What is drawn against what: choices that are part of the address.

import { h, say } from "./dom.js";
import * as address from "./address.js";
import { X_AXES, Y_AXES } from "./charts.js";

const WIDTHS = ["0", "5", "15", "51"];

// has: what there is to draw; withSeeds: whether seeds can be drawn apart.
export function curveControls(redraw, { has = null, withSeeds = false, flops = true } = {}) {
  const set = (entries) => { address.change(entries); redraw(); };
  const choice = (name, options, otherwise) => h("select", {
    name, onchange: (event) => set({ [name]: event.target.value }),
  }, options.map(([value, text]) => h("option", { value, selected: address.get(name, otherwise) === value }, text)));
  const tick = (name, code) => h("label", {},
    h("input", { type: "checkbox", name, checked: address.get(name) === "1", onchange: (event) => set({ [name]: event.target.checked }) }), say(code));
  const values = Y_AXES.filter((name) => !has || has.has(name)).map((name) => [name, say(`value.${name}`)]);
  const places = X_AXES.filter((name) => flops || name !== "flops").map((name) => [name, say(`against.${name}`)]);
  const widths = WIDTHS.map((width) => [width, width === "0" ? say("choose.smoothing.off") : say("choose.smoothing.on", { points: width })]);
  return h("div", { class: "controls" },
    h("label", {}, say("choose.value"), choice("y", values.length ? values : [["val_loss", say("value.val_loss")]], "val_loss")),
    h("label", {}, say("choose.against"), choice("x", places, "steps")),
    tick("logx", "choose.log_x"), tick("logy", "choose.log_y"),
    h("label", {}, say("choose.smoothing"), choice("smooth", widths, "0")),
    withSeeds ? tick("seeds", "choose.seeds") : null);
}
