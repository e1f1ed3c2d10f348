// A hypothesis: what is claimed, what the runs say, and its interval against the margin.

import { fill, h, say, short, svg } from "./dom.js";

const wide = matchMedia("(min-width: 40rem)");
const HEIGHT = 88;
const FOOT = 60; // where uprights end
const LINE = 36;
const LETTER = 6.2; // the width of one, about

export function card(found) {
  return h("article", { class: `card ${found.outcome}`, "data-card": found.name, "data-outcome": found.outcome },
    h("div", { class: "head" }, h("h3", {}, found.name), h("span", { class: "outcome" }, found.outcome_word)),
    h("p", {}, found.claim, found.scope ? h("span", { class: "soft" }, /^[（(]/.test(found.scope) && say("language.code") === "zh" ? found.scope : ` ${found.scope}`) : null),
    found.incomplete ? h("p", { class: "incomplete" }, found.incomplete) : null,
    found.interval ? interval(found.interval) : null,
    found.sentence ? h("p", {}, found.sentence) : null,
    found.reservations.map((each) => h("p", { class: "reservation" }, each)),
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

const widthOf = () => (wide.matches ? 420 : 330); // letters stay readable on a phone

function interval(found) {
  const span = widthOf();
  const ends = [found.low, found.high, found.mean, found.origin, found.from, found.to, ...found.seeds].filter((value) => typeof value === "number");
  const room = 0.09 * (Math.max(...ends) - Math.min(...ends) || 1);
  const least = Math.min(...ends) - room;
  const most = Math.max(...ends) + room;
  const x = (value) => (10 + ((value - least) / (most - least)) * (span - 20)).toFixed(1);
  const start = found.from === null ? 0 : Number(x(found.from));
  const end = found.to === null ? span : Number(x(found.to));
  const upright = (value, kind) => svg("line", { class: kind, x1: x(value), x2: x(value), y1: 8, y2: FOOT });
  const edges = [found.from, found.to].filter((value) => typeof value === "number");
  const text = describe(found);
  return h("figure", { class: "interval" },
    svg("svg", { viewBox: `0 0 ${span} ${HEIGHT}`, role: "img", "aria-label": text },
      svg("rect", { class: "region", x: start, y: 8, width: Math.max(0, end - start), height: FOOT - 8 }),
      upright(found.origin, "origin"),
      edges.map((value) => upright(value, "edge")),
      found.low === null ? [] : svg("line", { class: "interval", x1: x(found.low), x2: x(found.high), y1: LINE, y2: LINE }),
      svg("circle", { class: "mean", cx: x(found.mean), cy: LINE, r: 4.5 }),
      found.seeds.map((value) => svg("circle", { class: "seed", cx: x(value), cy: LINE + 13, r: 2.4 })),
      found.low === null ? [] : endLabels(found, x, start, end),
      axisLabels([found.origin, ...edges], x)),
    h("figcaption", { class: "soft" }, found.axis));
}

const width = (text) => text.length * LETTER;
const within = (at, text) => Math.min(Math.max(at, width(text) / 2 + 2), widthOf() - width(text) / 2 - 2);
const label = (at, y, text, kind) => svg("text", { class: kind, x: within(at, text).toFixed(1), y }, text);

// What the ends of the interval are, above it: apart, or in one label where there is too little room.
function endLabels(found, x, from, to) {
  const kind = (at) => (at < from || at > to ? "end outside" : "end");
  const [low, high] = [short(found.low), short(found.high)];
  const [start, end] = [Number(x(found.low)), Number(x(found.high))];
  const hasRoom = within(end, high) - within(start, low) > (width(low) + width(high)) / 2 + 8;
  if (hasRoom) return [label(start, LINE - 10, low, kind(start)), label(end, LINE - 10, high, kind(end))];
  return [label((start + end) / 2, LINE - 10, `${low} – ${high}`, kind((start + end) / 2))];
}

// Below the uprights; a label that would touch one before it stands in the next row.
function axisLabels(values, x) {
  const rows = [];
  return [...new Set(values)].map((value) => {
    const text = short(value);
    const at = within(Number(x(value)), text);
    const half = width(text) / 2 + 3;
    let row = rows.findIndex((taken) => taken.every(([from, to]) => at + half < from || at - half > to));
    if (row < 0) row = rows.push([]) - 1;
    rows[row].push([at - half, at + half]);
    return label(at, FOOT + 12 + 12 * row, text, "axis");
  });
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
