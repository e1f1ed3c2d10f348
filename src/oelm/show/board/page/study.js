// One study: its question, its hypotheses as cards, curves with bands, tuning, runs, confounds, attention heads.

import { announce, duration, fill, h, keepingFocus, number, numbersBelow, plainTable, say, section, throttled } from "./dom.js";
import * as address from "./address.js";
import * as charts from "./charts.js";
import { showCards } from "./card.js";
import { Choice } from "./choice.js";
import { curveControls } from "./controls.js";
import { notShown, rowText, runColumns } from "./overview.js";
import { Table } from "./table.js";

const MOST_NUMBERS = 8; // of the curve of an arm, as text

export async function study(main, name, { live }) {
  const page = new StudyPage(main, name);
  page.stream = live([name], () => page.reload());
  return page.load();
}

class StudyPage {
  constructor(main, name) {
    // bands: by arm and what is measured; curves: what of that was asked for last, and the version that it is of
    Object.assign(this, { main, name, bands: {}, curves: { values: [], version: 0 }, seeds: null, rowsVersion: 0, standingVersion: 0, hidden: new Set(address.all("hide")) });
    const whileShown = (action) => () => { if (this.head.isConnected) action(); };
    this.reload = throttled(whileShown(() => this.loadNews()), 1000);
    this.reloadStanding = throttled(whileShown(() => this.loadStanding()), 400);
    this.reloadSeeds = throttled(whileShown(() => this.askForSeeds().then(() => this.drawCurves())), 4000);
  }

  async load() {
    charts.plotly(); // asked for now, needed when the curves are here
    const curves = this.askForCurves();
    const found = await address.fetched("data/study", { name: this.name, first: 1 });
    if (found === null) return false;
    this.take(found);
    this.build();
    const version = await curves;
    await this.loadMissing();
    this.stream.begin({ [this.name]: Math.min(found.version, version) });
    this.showControls();
    this.drawCurves();
    this.reloadStanding(); // asked for last: it takes longest
    return true;
  }

  get what() {
    const asked = address.get("y");
    return charts.Y_AXES.includes(asked) ? asked : "val_loss";
  }

  // Answers may overtake each other, here and below.
  take(found) {
    this.takeRows(found);
    if (found.standing_version < this.standingVersion) return;
    this.found = found;
    this.standing = found.standing;
    this.arms = found.standing?.arms ?? found.arms ?? [];
    if (found.standing || found.problem) this.standingVersion = found.standing_version;
  }

  takeRows(found) {
    if (found.version < this.rowsVersion) return;
    this.rowsVersion = found.version;
    this.live = new Map(found.rows.map((row) => [row.id, row]));
  }

  // Rows and curves as they are now.
  async loadNews() {
    const curves = this.askForCurves();
    const found = await address.fetched("data/rows", { name: this.name });
    if (found === null) return;
    this.takeRows(found);
    this.showRows();
    if (found.standing_version > this.standingVersion) this.reloadStanding();
    const had = this.hasAccuracy;
    const version = await curves;
    this.stream.begin({ [this.name]: Math.min(found.version, version) });
    if (this.hasAccuracy !== had) this.showControls();
    this.drawCurves();
    if (this.seeds) this.reloadSeeds();
  }

  async loadStanding() {
    const found = await address.fetched("data/study", { name: this.name });
    if (found === null) return;
    this.take(found);
    this.showStanding();
    await this.loadMissing();
    this.showControls();
    this.drawCurves();
    this.showRows();
  }

  // Returns the version that they are of.
  async askForCurves() {
    const found = await address.fetched("data/curves", { name: this.name, y: this.what });
    if (found === null) return 0;
    const isOlder = this.curves.values.includes(this.what) && found.version < this.curves.version;
    if (found.values.includes(this.what) && !isOlder) {
      for (const [arm, names] of Object.entries(found.bands)) this.bands[arm] = { ...this.bands[arm], ...names };
      this.curves = found;
    }
    return found.version;
  }

  async askForSeeds() {
    const found = await address.fetched("data/seeds", { name: this.name, y: this.what });
    if (found?.y === this.what) this.seeds = found;
  }

  // What is to be drawn and has not been asked for yet.
  async loadMissing() {
    if (!this.curves.values.includes(this.what)) await this.askForCurves();
    if (!address.get("y") && this.standing?.measure === "accuracy" && this.hasAccuracy) address.change({ y: "accuracy" });
    if (address.get("seeds") !== "1") this.seeds = null;
    else if (this.seeds?.y !== this.what) await this.askForSeeds();
  }

  get hasAccuracy() { return Object.values(this.bands).some((each) => each.accuracy?.points.length); }

  // ---- The parts of the page ----

  build() {
    this.head = h("div");
    this.hypotheses = h("div");
    this.cards = h("div", { class: "cards" });
    this.chart = h("div", { class: "chart", role: "img" });
    this.legend = h("ul", { class: "legend", "aria-label": say("arms") });
    this.controls = h("div");
    this.note = h("p", { class: "soft" });
    this.values = h("details", {}, h("summary", {}, say("card.numbers")));
    this.tuning = h("div");
    this.runs = h("div");
    this.further = h("div");
    this.tableOf = null;
    this.choice = new Choice();
    keepingFocus(this.main, () => fill(this.main, this.head, this.hypotheses,
      section(say("curves"), this.controls, this.legend, this.chart, this.note, this.values),
      this.tuning,
      section(say("runs"), this.choice.element, this.runs),
      this.further, notShown(this.found.left_out)));
    this.showStanding();
    this.showControls();
    this.showRows();
  }

  // Made anew when its columns or the names of arms are others.
  showTable() {
    const measured = this.standing?.measure === "accuracy" ? ["val_loss", "accuracy"] : ["val_loss", "perplexity"];
    const labels = new Map(this.arms.map((arm) => [arm.key, arm.label]));
    const signature = JSON.stringify([measured, [...labels]]);
    if (this.tableOf === signature) return;
    this.tableOf = signature;
    this.table = new Table(runColumns({ labels, measured, choice: this.choice }), {
      label: say("runs"), keyOf: (row) => `${row.stage} ${row.run} ${row.id ?? ""}`, textOf: (row) => `${rowText(row)} ${labels.get(row.arm) ?? ""}`,
    });
    fill(this.runs, h("p", { class: "soft" }, say("runs.note")), this.table.element);
  }

  showStanding() {
    const { standing, found } = this;
    const reports = found.report.map((language) => h("a", { href: `report?${new URLSearchParams({ name: this.name, lang: language })}`, target: "_blank", rel: "noopener" }, say(`report.${language}`)));
    if (reports.length && found.report_is_other) reports.push(h("span", { class: "soft" }, say("report.other")));
    fill(this.head, h("h1", {}, this.name),
      standing || found.question ? h("p", { class: "question" }, standing?.question ?? found.question) : null,
      h("ul", { class: "facts" }, this.facts().map((each) => h("li", {}, each)), reports.map((each) => h("li", {}, each))),
      found.problem ? h("div", { class: "warning" }, h("p", {}, say("no_verdicts", { reason: found.problem }))) : null,
      standing?.missing.length ? h("div", { class: "warning", id: "missing" }, standing.missing.map((line) => h("p", {}, line))) : null,
      standing?.next_look.length ? h("div", { class: "note" }, standing.next_look.map((line) => h("p", {}, h("b", {}, `${say("next_look")}${say("colon")}`), line))) : null,
      standing?.cautions.length ? h("div", { class: "warning" }, standing.cautions.map((line) => h("p", {}, line))) : null,
      standing?.remarks.length ? notShown(standing.remarks, "unreadable") : null);
    const isKnown = standing || found.problem;
    if (!isKnown) { fill(this.hypotheses, h("p", { class: "note", id: "computing" }, say("computing"))); return; }
    if (!standing) { fill(this.hypotheses); return; }
    if (!this.cards.isConnected) fill(this.hypotheses, section(say("hypotheses"), this.cards));
    const before = new Map([...this.cards.children].map((each) => [each.dataset.card, each.dataset.outcome]));
    showCards(this.cards, standing.cards);
    if (!standing.cards.length) fill(this.cards, h("p", {}, say("no_hypotheses")));
    for (const each of standing.cards) {
      if (before.has(each.name) && before.get(each.name) !== each.outcome) announce(`${each.name}${say("colon")}${each.outcome_word}`);
    }
    this.showTuning();
    this.showFurther();
  }

  facts() {
    const { standing } = this;
    if (!standing) return [];
    const { done, planned } = standing.progress;
    return [
      [h("b", {}, say(standing.is_complete ? "complete" : "incomplete")), ` ${done}/${planned}`],
      ...(standing.seconds_left === null ? [] : [`${say("column.eta")}${say("colon")}${duration(standing.seconds_left)}`]),
      `${say("registration")}${say("colon")}${standing.registration}`,
    ];
  }

  showControls() {
    const redraw = async () => {
      await this.loadMissing();
      this.drawCurves();
    };
    const flops = this.arms.some((arm) => arm.flops_per_token);
    const has = new Set(["val_loss", "train_loss", ...(this.hasAccuracy || this.what === "accuracy" ? ["accuracy"] : [])]);
    fill(this.controls, curveControls(redraw, { has, withSeeds: true, flops }));
    this.showLegend();
  }

  showLegend() {
    const toggle = (key) => {
      if (!this.hidden.delete(key)) this.hidden.add(key);
      address.change({ hide: [...this.hidden] });
      this.showLegend();
      this.drawCurves();
    };
    fill(this.legend, this.arms.map((arm) => h("li", {}, h("button", {
      type: "button", "aria-pressed": String(!this.hidden.has(arm.key)), "data-arm": arm.key, title: say("arms.note"), onclick: () => toggle(arm.key),
    }, charts.lineSample(arm), arm.label))));
  }

  drawCurves() {
    const what = this.what;
    const shown = this.arms.filter((arm) => !this.hidden.has(arm.key));
    const bands = shown.map((arm) => [arm, this.bands[arm.key]?.[what]]).filter(([, band]) => band?.points.length);
    const apart = address.get("seeds") === "1" && this.seeds?.y === what ? Object.entries(this.seeds.runs) : null;
    const traces = apart
      ? shown.map((arm) => charts.seedsTrace(arm, apart.filter(([, run]) => run.arm === arm.key).map(([id, run]) => [id.split("/").pop(), run.points]))).filter(Boolean)
      : bands.flatMap(([arm, band]) => charts.bandTraces(arm, band));
    this.chart.setAttribute("aria-label", `${say("curves")}${say("colon")}${say(`value.${what}`)}, ${bands.map(([arm, band]) => `${arm.label} ${number(band.points.at(-1)[3])}`).join("; ")}`);
    this.chart.dataset.points = String(bands.reduce((sum, [, band]) => sum + band.points.length, 0));
    this.chart.dataset.traces = String(traces.length);
    this.chart.hidden = !this.arms.some((arm) => this.bands[arm.key]?.[what]?.points.length);
    const size = this.arms[0]?.size ? say("curves.size", { size: this.arms[0].size }) : "";
    this.note.textContent = size + say(this.chart.hidden ? "curves.none" : apart ? "curves.note_apart" : "curves.note");
    this.values.hidden = this.chart.hidden;
    if (!this.chart.hidden) charts.draw(this.chart, traces, charts.chartOptions());
    const rows = bands.flatMap(([arm, band]) => charts.thinned(band.points, MOST_NUMBERS).map((point) => (
      [arm.label, String(point[0]), number(point[3]), number(point[4]), number(point[5]), `${point[6]}/${band.seeds}`])));
    const header = [say("column.arm"), say("column.step"), say(`value.${what}`), say("column.least"), say("column.most"), say("column.seed")];
    numbersBelow(this.values, header, rows);
  }

  showTuning() {
    const panels = this.standing.tuning;
    const signature = JSON.stringify(panels);
    if (this.tuningOf === signature && this.tuning.hasChildNodes()) return;
    this.tuningOf = signature;
    if (!panels.length) { fill(this.tuning); return; }
    const drawn = panels.map((panel) => [panel, h("div", { class: "chart small", role: "img", "aria-label": `${say("tuning")}${say("colon")}${panel.label}` })]);
    const rows = panels.flatMap((panel) => panel.arms.flatMap((arm) => tried(arm).map(([value, loss]) => (
      [arm.label, panel.label, String(value), number(loss), value === arm.chosen ? say("tuning.chosen") : ""]))));
    fill(this.tuning, section(say("tuning"), h("p", { class: "soft" }, say("tuning.note")), h("div", { class: "panels" }, drawn.map(([, element]) => element)),
      h("details", {}, h("summary", {}, say("card.numbers")), plainTable([say("column.arm"), say("key"), say("value"), panels[0].axis, ""], rows))));
    for (const [panel, element] of drawn) {
      const traces = panel.arms.flatMap((arm) => tuningTraces(arm));
      const ticks = [...new Set(panel.arms.flatMap((arm) => arm.values))].sort((one, other) => one - other);
      charts.drawWhenSeen(element, traces, { ticks, xTitle: panel.label, yTitle: panel.axis, logX: panel.arms.every((arm) => arm.values.every((value) => value > 0)), logY: false, revision: panel.key });
    }
  }

  showFurther() {
    const { confounds, heads } = this.standing;
    const maps = heads.map((arm) => [arm, Object.entries(arm.tables).filter(([kind]) => say(`head.${kind}`) !== `head.${kind}`)
      .map(([kind, table]) => [kind, table, h("div", { class: "chart", role: "img", "aria-label": `${arm.label}${say("colon")}${say(`head.${kind}`)}` })])]);
    const signature = JSON.stringify([confounds, heads]);
    if (this.furtherOf === signature && this.further.hasChildNodes()) return;
    this.furtherOf = signature;
    fill(this.further,
      section(say("confounds"), h("p", { class: "soft" }, confounds.text), confounds.rows.length ? plainTable(confounds.header, confounds.rows) : null),
      heads.length ? section(say("heads"), h("p", { class: "soft" }, say("heads.note")), maps.map(([arm, tables]) => h("div", { class: "arm-heads" },
        h("h3", {}, arm.label), h("div", { class: "heads" }, tables.map(([, , element]) => element)), headNumbers(tables)))) : null);
    for (const [, tables] of maps) for (const [kind, table, element] of tables) charts.heatMap(element, table, say(`head.${kind}`), { ranked: true });
  }

  showRows() {
    this.showTable();
    const planned = this.standing?.rows ?? [];
    const known = new Set(planned.map((row) => row.id));
    const begun = new Map(); // runs that were not there when the plan was read
    for (const row of this.live.values()) if (!known.has(row.id)) begun.set(row.id, row);
    const rows = planned.map((row) => {
      const live = this.live.get(row.id) ?? (row.id ? null : taken(begun, row));
      return { ...row, ...withoutNames(live), state: row.state === "damaged" ? "damaged" : live?.state ?? row.state };
    });
    this.table.show([...rows, ...begun.values()]);
  }
}

// The same numbers as text.
export function headNumbers(tables) {
  const rows = tables.flatMap(([kind, table]) => table.map((row, layer) => [say(`head.${kind}`), String(layer), row.map((value) => number(value, 2)).join(" ")]));
  return h("details", {}, h("summary", {}, say("card.numbers")), plainTable([say("heads"), say("axis.layer"), say("axis.share_of_attention")], rows));
}

// The run that has begun in the place of a planned one, if it is plain which.
function taken(begun, planned) {
  const expected = begun.get(planned.expected);
  const alike = expected ? [expected] : [...begun.values()].filter((row) => row.stage === "final" && ["stage", "arm", "seed"].every((key) => row[key] === planned[key]));
  if (alike.length !== 1) return null;
  begun.delete(alike[0].id);
  return alike[0];
}

// What the plan knows better than the run itself.
function withoutNames(row) {
  if (!row) return {};
  const { run, arm, seed, stage, error, ...rest } = row;
  return error ? { ...rest, error } : rest;
}

// Values and their losses, and what was chosen: it may lie between them.
function tried(arm) {
  const found = new Map(arm.values.map((value, at) => [value, arm.losses[at]]));
  if (arm.chosen !== null && !found.has(arm.chosen)) found.set(arm.chosen, arm.chosen_loss);
  return [...found].sort(([one], [other]) => one - other);
}

function tuningTraces(arm) {
  const colour = charts.shownColour(arm.colour);
  const label = charts.escaped(arm.label);
  const kept = arm.values.map((value, at) => [value, arm.losses[at]]).filter(([, loss]) => loss !== null);
  const line = {
    type: "scatter", mode: "lines+markers", x: kept.map(([value]) => value), y: kept.map(([, loss]) => loss), line: { color: colour, dash: arm.dash, width: 2 },
    marker: { symbol: arm.symbol, size: 6, color: colour }, hovertemplate: `${label}<br>%{x}: <b>%{y:.5g}</b><extra></extra>`,
  };
  const ring = typeof arm.chosen_loss === "number" ? [{ type: "scatter", mode: "markers", x: [arm.chosen], y: [arm.chosen_loss], hovertemplate: line.hovertemplate, marker: { symbol: "circle-open", size: 14, color: colour, line: { width: 2 } } }] : [];
  return [line, ...ring];
}
