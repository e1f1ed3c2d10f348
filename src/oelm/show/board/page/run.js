// One run: its config, environment, counts, curves, log, checkpoints, and text it generated.

import { bytes, duration, fill, h, keepingOpen, moment, NONE, number, numbersBelow, plainTable, say, section, stateWord, throttled, whole } from "./dom.js";
import * as address from "./address.js";
import * as charts from "./charts.js";
import { curveControls } from "./controls.js";
import { headNumbers } from "./study.js";

const LOG_EVERY = 4000;
const MOST_NUMBERS = 40; // of a curve, as text
// Of a run that belongs to no arm.
const LOOK = { colour: "#0072B2", dash: "solid", symbol: "circle", flops_per_token: null };

export async function run(main, id, { live, whenLeft, again }) {
  const study = id.includes("/") ? id.slice(0, id.indexOf("/")) : "";
  const stream = live([study], () => change());
  const found = await address.fetched("data/run", { name: id });
  if (found === null) return false;
  const chart = h("div", { class: "chart", role: "img" });
  const log = h("pre", { tabindex: "0", "aria-label": say("log") });
  const state = h("ul", { class: "facts" });
  const values = h("details", {}, h("summary", {}, say("card.numbers")));
  const draw = () => {
    const what = address.get("y", "val_loss");
    const points = found.curves[what]?.points ?? [];
    chart.setAttribute("aria-label", `${say(`value.${what}`)}${say("colon")}${points.length ? number(points.at(-1)[3]) : NONE}`);
    chart.dataset.points = String(points.length);
    charts.draw(chart, points.length ? [charts.runTrace(say(`value.${what}`), points, { ...LOOK, ...found.look })] : [], charts.chartOptions());
    numbersBelow(values, [say("column.step"), say(`value.${what}`)], charts.thinned(points, MOST_NUMBERS).map((point) => [String(point[0]), number(point[3])]));
  };
  const showState = () => fill(state, [
    stateWord(found.row.state), `${say("column.step")}${say("colon")}${found.row.step ?? 0}/${found.row.steps ?? NONE}`,
    `${say("column.val_loss")}${say("colon")}${number(found.row.val_loss)}`,
    ...(found.row.seconds_left ? [`${say("column.eta")}${say("colon")}${duration(found.row.seconds_left)}`] : []),
    ...(found.row.changed ? [`${say("column.changed")}${say("colon")}${moment(found.row.changed)}`] : []),
  ].map((each) => h("li", {}, each)));
  const showLog = (lines) => {
    const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
    log.textContent = lines.length ? lines.join("\n") : say("log.none");
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  };
  const change = throttled(async () => {
    if (!chart.isConnected) return;
    const now = await address.fetched("data/run", { name: id });
    if (now === null || now.row.state !== found.row.state || (now.look && !found.look)) { again(); return; } // gone, or other files are there too
    Object.assign(found, { row: now.row, curves: now.curves, version: now.version });
    stream.begin({ [study]: now.version });
    showState();
    if ([...valuesOf(found.curves)].some((what) => !has.has(what))) showControls();
    draw();
  }, 1000);
  const controls = h("div");
  let has = null;
  const showControls = () => {
    has = valuesOf(found.curves);
    fill(controls, curveControls(draw, { has, flops: false }));
  };
  const pairs = (tree) => plainTable([say("key"), say("value")], Object.entries(tree).map(([key, value]) => [key, shown(value)]));
  const details = (title, tree, open = false) => (Object.keys(tree).length ? h("details", { open }, h("summary", {}, title), pairs(tree)) : null);
  const counts = Object.entries(found.counts).filter(([key, value]) => typeof value === "number" && (value || key !== "implied"));
  const roles = found.parts.map((part) => [part.role, whole(part.total), whole(part.trainable), whole(part.frozen)]);
  const maps = Object.entries(found.heads ?? {}).filter(([kind]) => say(`head.${kind}`) !== `head.${kind}`)
    .map(([kind, table]) => [kind, table, h("div", { class: "chart", role: "img", "aria-label": say(`head.${kind}`) })]);
  showControls();
  keepingOpen(main, () => fill(main,
    h("h1", {}, found.row.run), state,
    h("p", { class: "soft" }, study ? [`${say("run.of")}${say("colon")}`, h("a", { href: address.to({ study }) }, study), " · "] : null, found.path),
    found.row.error ? h("div", { class: "warning" }, h("p", {}, found.row.error)) : null,
    found.problems.length ? h("div", { class: "warning" }, found.problems.map((line) => h("p", {}, line))) : null,
    section(say("curves"), controls, chart, values),
    section(say("log"), log),
    section(say("sample"), sample(found.sample)),
    h("div", { class: "columns" },
      section(say("checkpoints"), found.checkpoints.length
        ? plainTable([say("checkpoints"), say("column.step"), say("column.size"), say("column.changed")], found.checkpoints.map((each) => [each.name, String(each.step), bytes(each.bytes), moment(each.changed)]))
        : h("p", { class: "soft" }, say("checkpoints.none"))),
      counts.length ? section(say("counts"), plainTable([say("key"), say("value")], counts.map(([key, value]) => [say(`counts.${key}`).replace("counts.", ""), whole(value)]), { numbers: 1 }),
        roles.length ? h("details", {}, h("summary", {}, say("counts.by_role")), plainTable(["role", "total", "trainable", "frozen"].map((name) => say(`counts.${name}`)), roles, { numbers: 3 })) : null) : null),
    maps.length ? section(say("heads"), h("p", { class: "soft" }, say("heads.note_run")), h("div", { class: "heads" }, maps.map(([, , element]) => element)), headNumbers(maps)) : null,
    section(say("details"), details(say("config"), found.config), details(say("environment"), found.environment), details(say("result"), found.result))));
  showState();
  showLog(found.log);
  draw();
  for (const [kind, table, element] of maps) charts.heatMap(element, table, say(`head.${kind}`), { ranked: false });
  stream.begin({ [study]: found.version });
  const timer = setInterval(async () => {
    if (found.row.state !== "running") return;
    const news = await address.fetched("data/log", { name: id }).catch(() => null);
    if (news) showLog(news.log);
  }, LOG_EVERY);
  whenLeft(() => clearInterval(timer));
  return true;
}

// What there is to draw, besides the losses that every run has or will have.
export function valuesOf(...curves) {
  return new Set(["val_loss", "train_loss", ...charts.Y_AXES.filter((name) => curves.some((each) => each[name]?.points.length))]);
}

export function shown(value) {
  if (value === null || value === undefined) return NONE;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function sample(found) {
  if (!found) return h("p", { class: "soft" }, say("sample.none"));
  const facts = { of: found.of ?? "", temperature: found.temperature, top_k: found.top_k, seed: found.seed };
  return [h("p", { class: "soft" }, say("sample.settings", facts)), found.texts.map((text) => h("pre", { tabindex: "0" }, text))];
}
