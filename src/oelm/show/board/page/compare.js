// Chosen runs side by side, and what differs between their configs and environments.

import { fill, h, number, numbersBelow, plainTable, say, section, stateWord, throttled } from "./dom.js";
import * as address from "./address.js";
import * as charts from "./charts.js";
import { MOST_COMPARED } from "./choice.js";
import { curveControls } from "./controls.js";
import { shown, valuesOf } from "./run.js";

const COLOURS = ["#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D00"];
const DASHES = ["solid", "dash", "dashdot", "dot", "longdash", "longdashdot"];
const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star"];

// Each run is drawn as its arm; further runs of the arm in its colour, with other lines and marks. Runs of no arm differ in all.
function looksOf(runs) {
  const drawn = new Map(); // how many so far, by colour
  const other = (list, own, turn) => [own, ...list.filter((each) => each !== own)][turn % list.length];
  return runs.map(({ look }, at) => {
    if (!look) return { colour: COLOURS[at % 8], dash: DASHES[Math.floor(at / 8) % 4], symbol: SYMBOLS[at % 8], flops_per_token: null };
    const turn = drawn.get(look.colour) ?? 0;
    drawn.set(look.colour, turn + 1);
    return { colour: look.colour, dash: other(DASHES, look.dash, turn), symbol: other(SYMBOLS, look.symbol, turn), flops_per_token: null };
  });
}

function lastNumbers(name, points) {
  const values = points.map((point) => point[3]);
  return [name, String(points.at(-1)[0]), number(values.at(-1)), number(values.reduce((one, other) => Math.min(one, other))), number(values.reduce((one, other) => Math.max(one, other)))];
}

export async function compare(main, ids, { live, again }) {
  if (ids.length < 2) { fill(main, h("h1", {}, say("compare")), h("p", {}, say("compare.few"))); return true; }
  const studies = [...new Set(ids.map((id) => (id.includes("/") ? id.slice(0, id.indexOf("/")) : "")))];
  const stream = live(studies, () => change());
  const found = await address.fetched("data/compare", { name: ids });
  if (found === null) return false;
  const chart = h("div", { class: "chart", role: "img" });
  const table = h("div");
  const values = h("details");
  const looks = looksOf(found.runs);
  const draw = () => {
    const what = address.get("y", "val_loss");
    const traces = found.runs.map((run, at) => [run, at]).filter(([run]) => run.curves[what]?.points.length)
      .map(([run, at]) => charts.runTrace(run.row.run, run.curves[what].points, looks[at]));
    chart.setAttribute("aria-label", `${say("compare")}${say("colon")}${say(`value.${what}`)}`);
    chart.dataset.traces = String(traces.length);
    charts.draw(chart, traces, charts.chartOptions());
    numbersBelow(values, [say("column.run"), say("column.step"), say(`value.${what}`), say("column.least"), say("column.most")], found.runs
      .filter((run) => run.curves[what]?.points.length).map((run) => lastNumbers(run.row.run, run.curves[what].points)));
    const rows = found.runs.map(({ row, arm }, at) => [
      charts.lineSample(looks[at]), h("a", { href: address.to({ run: row.id }) }, row.run), arm ?? "", String(row.seed ?? ""), stateWord(row.state),
      `${row.step ?? 0}/${row.steps ?? ""}`, number(row.val_loss), row.accuracy === null ? number(row.perplexity, 3) : number(row.accuracy)]);
    const header = ["", ...["run", "arm", "seed", "state", "step", "val_loss"].map((name) => say(`column.${name}`)), `${say("column.perplexity")} / ${say("column.accuracy")}`];
    fill(table, plainTable(header, rows));
  };
  const versions = (runs) => Object.fromEntries(studies.map((study) => [study, Math.min(...runs.filter((run) => run.study === study).map((run) => run.version))]));
  const change = throttled(async () => {
    if (!chart.isConnected) return;
    const now = await address.fetched("data/compare", { name: ids });
    const isOther = now?.runs.length !== found.runs.length || now.runs.some((run, at) => run.look && !found.runs[at].look);
    if (isOther) { again(); return; } // one is gone, or arms are known now
    found.runs = now.runs;
    stream.begin(versions(found.runs));
    draw();
  }, 2000);
  const has = valuesOf(...found.runs.map((run) => run.curves));
  const names = found.runs.map((run) => run.row.run);
  const differences = found.differences.map(({ key, values }) => [key, ...values.map(shown)]);
  const links = studies.filter(Boolean).map((study) => h("a", { href: address.to({ study }) }, study));
  const back = links.length ? h("p", { class: "soft" }, `${say("run.of")}${say("colon")}`, links.flatMap((link, at) => (at ? [", ", link] : [link]))) : null;
  fill(main, h("h1", {}, say("compare")), back, table,
    found.gone.length ? h("p", { class: "warning" }, say("compare.gone", { runs: found.gone.join(", ") })) : null,
    ids.length > MOST_COMPARED ? h("p", { class: "warning" }, say("compare.most", { most: MOST_COMPARED })) : null,
    section(say("curves"), curveControls(draw, { has, flops: false }), chart, values),
    section(say("compare.differences"), differences.length ? plainTable([say("key"), ...names], differences) : h("p", {}, say("compare.same"))));
  draw();
  stream.begin(versions(found.runs));
  return true;
}
