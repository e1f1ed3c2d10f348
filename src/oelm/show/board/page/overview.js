// Every study and single run: question and verdicts, state, progress, time left, last change, failures.

import { duration, fill, h, moment, number, say, section, stateWord, throttled } from "./dom.js";
import * as address from "./address.js";
import { Choice } from "./choice.js";
import { hideNeedless, Table } from "./table.js";

export async function overview(main, { live }) {
  const stream = live([], (kind, event) => change(kind, event));
  const found = await address.fetched("data/overview");
  const studies = new Map(found.studies.map((each) => [each.name, each]));
  let runs = found.runs;
  const body = h("tbody");
  const choice = new Choice();
  const single = new Table(runColumns({ withStudy: false, choice }), { label: say("single_runs"), keyOf: (row) => row.id, textOf: rowText });
  const table = h("table", {}, h("thead", {}, h("tr", {}, ["study", "states", "progress", "eta", "changed", "failures"].map((name) => (
    h("th", { scope: "col", class: `column-${name}` }, say(`column.${name}`)))))), body);
  const ofStudies = section(say("studies"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": say("studies") },
table));
  const ofRuns = section(say("single_runs"), single.element);
  const leftOut = h("div");
  const nothing = h("p", {}, say("nothing", { folder: found.folder }));
  const show = () => {
    fill(body, [...studies.values()].map(studyLine));
    const all = [...studies.values()];
    hideNeedless(table, [["eta", all.every((each) => each.seconds_left === null)], ["changed", all.every((each) => !each.changed)]]);
    single.show(runs);
    ofStudies.hidden = !studies.size;
    ofRuns.hidden = !runs.length;
    nothing.hidden = studies.size > 0 || runs.length > 0;
    fill(leftOut, notShown([...found.left_out, ...all.flatMap((each) => each.left_out)]));
  };
  const redraw = throttled(show, 500);
  function change(kind, event) {
    if (kind === "study") studies.set(event.name, event);
    if (kind === "gone") studies.delete(event.study);
    if (kind === "runs") runs = event.runs;
    redraw();
  }
  fill(main, h("h1", {}, say("overview")), nothing, choice.element, ofStudies, ofRuns, leftOut);
  show();
  stream.begin({});
}

export function notShown(lines, title = "left_out") {
  return lines.length ? h("div", { class: "warning" }, h("p", {}, h("b", {}, say(title))), lines.map((line) => h("p", {}, line))) : null;
}

// In one line or two.
function dayAndTime(seconds) {
  return moment(seconds).split(" ").flatMap((part) => [h("span", { class: "unbroken" }, part), " "]);
}

function studyLine(study) {
  const { done, planned } = study.progress;
  const states = Object.entries(study.states).map(([state, count]) => h("div", {}, `${count} `, stateWord(state)));
  const failures = study.failures.map((each) => h("div", {}, h("a", { href: address.to({ run: each.id }) }, each.id.split("/").pop()), `${say("colon")}${each.error ?? ""}`));
  const { question, verdicts = [] } = study.in_short[document.documentElement.lang.slice(0, 2)] ?? {};
  return h("tr", { "data-study": study.name },
    h("td", {}, h("a", { href: address.to({ study: study.name }) }, study.name), [question, ...verdicts].map((line) => line && h("div", {}, line))),
    h("td", { class: "tight" }, states),
    h("td", { class: "tight" }, h("progress", { max: String(Math.max(1, planned)), value: String(done), "aria-label": say("column.progress") }), `${done}/${planned}`),
    h("td", { class: "tight column-eta" }, duration(study.seconds_left)),
    h("td", { class: "column-changed" }, dayAndTime(study.changed)),
    h("td", { class: "wide" }, failures, study.more_failures ? `+ ${study.more_failures}` : null));
}

export function rowText(row) {
  return [row.run, row.id, row.arm, row.seed, row.stage, row.state, say(`state.${row.state}`), row.error].filter(Boolean).join(" ");
}

// The columns of a table of runs.
export function runColumns({ withStudy = true, labels = new Map(), measured = ["val_loss", "perplexity"], choice } = {}) {
  const digits = { accuracy: (value) => number(value), val_loss: (value) => number(value), perplexity: (value) => number(value, 3) };
  return [
    { key: "choose", title: say("column.choose"), cell: (row) => (row.id ? choice.box(row) : null), stays: true },
    { key: "run", tight: true, title: say("column.run"), order: (row) => row.run, cell: (row) => (row.id ? h("a", { href: address.to({ run: row.id }) }, row.run) : row.run) },
    ...(withStudy ? [{ key: "stage", isNeedless: (row) => row.stage === "final", title: say("column.stage"), order: (row) => row.stage, cell: (row) => say(`stage.${row.stage}`) }] : []),
    { key: "arm", broad: true, title: say("column.arm"), order: (row) => row.arm, cell: (row) => labels.get(row.arm) ?? row.arm ?? "" },
    { key: "seed", title: say("column.seed"), number: true, order: (row) => row.seed, cell: (row) => row.seed ?? "" },
    { key: "state", tight: true, title: say("column.state"), order: (row) => row.state, cell: (row) => stateWord(row.state) },
    { key: "step", title: say("column.step"), number: true, order: (row) => row.step ?? -1, cell: (row) => (row.steps ? `${row.step ?? 0}/${row.steps}` : "") },
    ...measured.map((name) => ({ key: name, title: say(`column.${name}`), number: true, order: (row) => row[name], cell: (row) => digits[name](row[name]) })),
    { key: "eta", isNeedless: (row) => !row.seconds_left, title: say("column.eta"), number: true, order: (row) => row.seconds_left, cell: (row) => (row.seconds_left === null || row.seconds_left === undefined ? "" : duration(row.seconds_left)) },
    { key: "changed", isNeedless: (row) => !row.changed, title: say("column.changed"), order: (row) => row.changed, cell: (row) => (row.changed ? dayAndTime(row.changed) : "") },
    { key: "error", title: say("column.error"), wide: true, order: (row) => row.error, cell: (row) => row.error ?? row.why ?? "" },
  ];
}
