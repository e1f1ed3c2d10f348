// A hypothesis: what is claimed, what the runs say, and its interval against the margin.

import { fill, h, say, short, svg } from "./dom.js";

const WIDTH = 420;
const HEIGHT = 74;
const LINE = 30;

export function card(found) {
  return h("article", { class: `card ${found.outcome}`, "data-card": found.name, "data-outcome": found.outcome },
    h("div", { class: "head" }, h("h3", {}, found.name), h("span", { class: "outcome" }, found.outcome_word)),
    h("p", {}, found.claim, found.scope ? h("span", { class: "soft" }, ` ${found.scope}`) : null),
    found.incomplete ? h("p", { class: "incomplete" }, found.incomplete) : null,
    found.interval ? interval(found.interval) : null,
    found.sentence ? h("p", {}, found.sentence) : null,
    found.numbers.length ? h("details", {}, h("summary", {}, say("card.numbers")),
      h("dl", {}, found.numbers.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))) : null,
    found.remarks.map((remark) => h("p", { class: "soft" }, remark)));
}

// Cards that stay open while their content changes.
export function showCards(element, cards) {
  const open = new Set([...element.querySelectorAll("article:has(details[open])")].map((each) => each.dataset.card));
  fill(element, cards.map(card));
  for (const each of element.children) if (open.has(each.dataset.card)) each.querySelector("details")?.setAttribute("open", "");
}

function interval(found) {
  const ends = [found.low, found.high, found.mean, found.origin, found.from, found.to, ...found.seeds].filter((value) => typeof value === "number");
  const room = 0.09 * (Math.max(...ends) - Math.min(...ends) || 1);
  const least = Math.min(...ends) - room;
  const most = Math.max(...ends) + room;
  const x = (value) => (10 + ((value - least) / (most - least)) * (WIDTH - 20)).toFixed(1);
  const start = found.from === null ? 0 : Number(x(found.from));
  const end = found.to === null ? WIDTH : Number(x(found.to));
  const upright = (value, kind) => svg("line", { class: kind, x1: x(value), x2: x(value), y1: 8, y2: HEIGHT - 22 });
  const edges = [found.from, found.to].filter((value) => typeof value === "number");
  const marks = [found.origin, ...edges.filter((value) => Math.abs(Number(x(value)) - Number(x(found.origin))) > 26)];
  const text = describe(found);
  return h("figure", { class: "interval" },
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": text },
      svg("rect", { class: "region", x: start, y: 8, width: Math.max(0, end - start), height: HEIGHT - 30 }),
      upright(found.origin, "origin"),
      edges.map((value) => upright(value, "edge")),
      found.low === null ? [] : svg("line", { class: "interval", x1: x(found.low), x2: x(found.high), y1: LINE, y2: LINE }),
      svg("circle", { class: "mean", cx: x(found.mean), cy: LINE, r: 4.5 }),
      found.seeds.map((value) => svg("circle", { class: "seed", cx: x(value), cy: LINE + 13, r: 2.4 })),
      marks.map((value) => svg("text", { x: x(value), y: HEIGHT - 9 }, short(value)))),
    h("figcaption", { class: "soft" }, found.axis));
}

function describe(found) {
  const region = found.from === null ? "below" : found.to === null ? "above" : "between";
  const facts = { from: short(found.from), to: short(found.to) };
  const none = say("card.no_interval");
  return say("card.drawn", {
    mean: short(found.mean), low: found.low === null ? none : short(found.low), high: found.high === null ? none : short(found.high),
    region: say(`card.region.${region}`, facts),
  });
}
