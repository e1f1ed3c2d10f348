// Drawing with plotly, whose labels know some markup: texts are escaped before they get there.

import { number, say, short, svg } from "./dom.js";
import * as address from "./address.js";

let loading = null;

// Plotly's script is large: it is asked for when the first chart is drawn, not before the page can be read.
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "page/plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { loading = null; reject(new Error("plotly.min.js")); };
    document.head.append(script);
  });
  return loading;
}

export function escaped(text) {
  const signs = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "%": "&#37;", "{": "&#123;", "}": "&#125;" };
  return String(text).replace(/[&<>%{}]/g, (sign) => signs[sign]);
}

export function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function isDark() { return document.documentElement.dataset.theme === "dark"; }

// The baseline is black in reports; on a dark page it is nearly white.
export function shownColour(colour) { return colour === "#000000" ? variable("--text") : colour; }

function layoutOf({ xTitle, yTitle, logX, logY, revision, ticks = null, hovermode = "closest" }) {
  const axis = (title, log) => ({
    title: { text: escaped(title), standoff: 8 }, type: log ? "log" : "linear", gridcolor: variable("--line"), zeroline: false,
    linecolor: variable("--soft"), automargin: true, ticks: "outside", ticklen: 5, tickcolor: variable("--soft"), exponentformat: "SI", ...(log ? { dtick: undefined, nticks: 8 } : {}),
  });
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: variable("--soft"), activecolor: variable("--link") },
    font: { color: variable("--text"), family: getComputedStyle(document.body).fontFamily, size: 12 },
    hoverlabel: { bgcolor: variable("--page"), bordercolor: variable("--line"), font: { color: variable("--text") }, namelength: -1 },
    margin: { l: 55, r: 12, t: 10, b: 45 }, xaxis: { ...axis(xTitle, logX), ...(ticks ? { tickvals: ticks, ticktext: ticks.map(String) } : {}) }, yaxis: axis(yTitle, logY), uirevision: revision,
  };
}

// Only these buttons: others that plotly has upload the chart to its maker.
const BUTTONS = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"];
const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [BUTTONS], plotlyServerURL: "" };

export async function draw(element, traces, layout) {
  const library = await plotly();
  if (element.isConnected) await library.react(element, traces, layoutOf(layout), CONFIG);
}

// Below what is seen there may be many charts; each is drawn when it comes near.
const waiting = new WeakMap();
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) drawn(target);
  }
}, { rootMargin: "400px" });

function drawn(element) {
  observer.unobserve(element);
  waiting.get(element)?.();
  waiting.delete(element);
}

function whenSeen(element, action) {
  waiting.set(element, action);
  observer.observe(element);
  later(() => drawn(element));
}

// One that nobody comes near is drawn when there is nothing else to do: it may be printed.
function later(action) {
  if (window.requestIdleCallback) requestIdleCallback(action, { timeout: 20000 });
  else setTimeout(action, 2000);
}

export function drawWhenSeen(element, traces, layout) { whenSeen(element, () => draw(element, traces, layout)); }

// ---- Curves ----

export const X_AXES = ["steps", "tokens", "seconds", "flops"];
export const Y_AXES = ["val_loss", "train_loss", "accuracy"];

export function axisTitles() {
  const x = { steps: "axis.steps", tokens: "axis.tokens", seconds: "axis.time", flops: "axis.flop" };
  const y = { val_loss: "axis.validation_loss", train_loss: "axis.train_loss", accuracy: "axis.accuracy" };
  return { x: say(x[address.get("x", "steps")] ?? "axis.steps"), y: say(y[address.get("y", "val_loss")] ?? "axis.validation_loss") };
}

export function placeOf(point, flopsPerToken) {
  const x = address.get("x", "steps");
  if (x === "tokens") return point[1];
  if (x === "seconds") return point[2];
  if (x === "flops") return flopsPerToken ? point[1] * flopsPerToken : null;
  return point[0];
}

// A centred mean over an odd number of points; 0 leaves them as they are.
export function smoothed(values, width) {
  if (!width || width < 3) return values;
  const half = Math.floor(width / 2);
  return values.map((_, at) => {
    const part = values.slice(Math.max(0, at - half), at + half + 1);
    return part.reduce((sum, value) => sum + value, 0) / part.length;
  });
}

// An arm: its band, its mean where all seeds have got this far, and faint where some have not.
export function bandTraces(arm, band) {
  const colour = shownColour(arm.colour);
  const width = Number(address.get("smooth", "0"));
  const points = band.points.filter((point) => placeOf(point, arm.flops_per_token) !== null);
  if (!points.length) return [];
  const x = points.map((point) => placeOf(point, arm.flops_per_token));
  const [mean, low, high] = [3, 4, 5].map((column) => smoothed(points.map((point) => point[column]), width));
  const counts = points.map((point) => point[6]);
  const lastWhole = counts.lastIndexOf(band.seeds);
  const from = (values, start, end) => values.slice(start, end);
  const rest = { type: "scatter", hoverinfo: "skip", mode: "lines", line: { width: 0, color: colour } };
  const custom = points.map((point, at) => [number(low[at]), number(high[at]), point[6], band.seeds, short(point[0])]);
  const seeds = say("hover.seeds", { count: "\u0001", of: "\u0002" });
  const template = `${escaped(arm.label)}<br><b>%{y:.5g}</b>${escaped(say("in_brackets", { text: "\u0003" })).replace("\u0003", "%{customdata[0]} – %{customdata[1]}")}<br>`
    + escaped(seeds).replace("\u0001", "%{customdata[2]}").replace("\u0002", "%{customdata[3]}") + "<extra></extra>";
  const line = (start, end, { isFaint }) => ({
    type: "scatter", mode: end - start > 60 ? "lines" : "lines+markers", x: from(x, start, end), y: from(mean, start, end),
    customdata: from(custom, start, end), hovertemplate: template, name: arm.key,
    line: { color: colour, dash: arm.dash, width: isFaint ? 1 : 2 }, marker: { symbol: arm.symbol, size: isFaint ? 4 : 5, color: colour },
    opacity: isFaint ? 0.45 : 1,
  });
  const fillColour = `${colour}2e`;
  return [
    ...(band.seeds > 1 ? [{ ...rest, x, y: low }, { ...rest, x, y: high, fill: "tonexty", fillcolor: fillColour }] : []),
    ...(lastWhole >= 0 ? [line(0, lastWhole + 1, { isFaint: false })] : []),
    ...(lastWhole < points.length - 1 ? [line(Math.max(0, lastWhole), points.length, { isFaint: true })] : []),
  ];
}

// One run.
export function runTrace(label, points, look) {
  const [x, y] = drawnPoints(points, look);
  return { ...lineOf(look, x, y, { mode: x.length > 60 ? "lines" : "lines+markers", width: 2 }), name: escaped(label), hovertemplate: `${escaped(label)}<br><b>%{y:.5g}</b><extra></extra>` };
}

// The runs of an arm apart, as one line with gaps: plotly draws a few lines of many points, not many lines. runs: names and points.
export function seedsTrace(arm, runs) {
  const [xs, ys, names] = [[], [], []];
  for (const [name, points] of runs) {
    const [x, y] = drawnPoints(points, arm);
    if (!x.length) continue;
    xs.push(...x, null);
    ys.push(...y, null);
    names.push(...x.map(() => escaped(name)), "");
  }
  const template = `${escaped(arm.label)}<br>%{text}<br><b>%{y:.5g}</b><extra></extra>`;
  return xs.length ? { ...lineOf(arm, xs, ys, { mode: "lines", width: 1 }), text: names, name: arm.key, hovertemplate: template, connectgaps: false, opacity: 0.75 } : null;
}

// A short line as curves of this look are drawn, beside a name.
export function lineSample(look) {
  return svg("svg", { class: "sample", viewBox: "0 0 32 10", "aria-hidden": "true" },
    svg("line", { x1: 0, x2: 32, y1: 5, y2: 5, stroke: shownColour(look.colour), "stroke-width": 2.5, "stroke-dasharray": dashes(look.dash) }));
}

function dashes(dash) {
  const known = { solid: "", dash: "7 4", dashdot: "7 3 2 3", dot: "2 3", longdash: "11 4", longdashdot: "11 3 2 3" };
  return known[dash] ?? dash.replaceAll("px", "").replaceAll(",", " ");
}

function drawnPoints(points, look) {
  const kept = points.filter((point) => placeOf(point, look.flops_per_token) !== null);
  return [kept.map((point) => placeOf(point, look.flops_per_token)), smoothed(kept.map((point) => point[3]), Number(address.get("smooth", "0")))];
}

function lineOf(look, x, y, { mode, width }) {
  const colour = shownColour(look.colour);
  return { type: "scatter", mode, x, y, line: { color: colour, dash: look.dash, width }, marker: { symbol: look.symbol, size: 5, color: colour } };
}

// At most so many of them, the last one among them.
export function thinned(points, most) {
  const stride = Math.ceil(points.length / most);
  return points.filter((_, at) => (points.length - 1 - at) % stride === 0);
}

export function chartOptions() {
  const titles = axisTitles();
  return {
    xTitle: titles.x, yTitle: titles.y, logX: address.get("logx") === "1", logY: address.get("logy") === "1",
    revision: ["x", "y", "logx", "logy"].map((name) => address.get(name)).join(),
  };
}

// ---- Attention heads ----

// From none to all, away from the colour of the page; none is still seen.
const SHADES = ["#EEF2F5", "#C6DBEC", "#7FB2D6", "#3A83B8", "#0B5A94", "#06304F"];
const SHADES_ON_DARK = ["#24292E", "#1E4A6B", "#2C6F9F", "#4F9BCB", "#93C7E8", "#E3F2FC"];
const MOST_IN_CELLS = 6; // heads or layers whose values have room in the cells; of more, a scale says what the colours mean

export function heatMap(element, table, title, { ranked }) { whenSeen(element, () => drawHeatMap(element, table, title, ranked)); }

async function drawHeatMap(element, table, title, ranked) {
  const library = await plotly();
  if (!element.isConnected) return;
  const scale = (isDark() ? SHADES_ON_DARK : SHADES).map((colour, at, all) => [at / (all.length - 1), colour]);
  const heads = Math.max(...table.map((row) => row.length));
  const first = ranked ? 1 : 0;
  const hasRoom = Math.max(heads, table.length) <= MOST_IN_CELLS;
  const trace = {
    type: "heatmap", z: table, x: [...Array(heads).keys()].map((head) => head + first), zmin: 0, zmax: 1, colorscale: scale,
    xgap: 1, ygap: 1, ...(hasRoom ? { texttemplate: "%{z:.2f}" } : {}), showscale: !hasRoom,
    colorbar: { thickness: 8, outlinewidth: 0, tickvals: [0, 0.5, 1], xpad: 4, ypad: 0 },
    hovertemplate: `${escaped(say("axis.layer"))} %{y}, ${escaped(say("axis.head"))} %{x}: <b>%{z:.3f}</b><extra></extra>`,
  };
  const layout = layoutOf({ xTitle: say(ranked ? "axis.ranked_head" : "axis.head"), yTitle: say("axis.layer"), revision: "heads" });
  layout.title = { text: escaped(title), font: { size: 13 } };
  layout.margin.t = 30;
  layout.yaxis.autorange = "reversed";
  layout.yaxis.dtick = layout.xaxis.dtick = Math.ceil(Math.max(heads, table.length) / 8);
  layout.xaxis.showgrid = layout.yaxis.showgrid = false;
  await library.react(element, [trace], layout, { ...CONFIG, displayModeBar: false });
}
