// The frame of the page: words, colours, the way from view to view.

import { fill, h, say, setWords } from "./dom.js";
import * as address from "./address.js";
import { compare } from "./compare.js";
import { Live } from "./live.js";
import { overview } from "./overview.js";
import { run } from "./run.js";
import { study } from "./study.js";

const THEMES = ["system", "light", "dark"];
const AGAIN = 5000; // milliseconds until a study or run that is not there is looked for again
const main = document.getElementById("content");
let stream = null;
let left = [];
let turn = 0; // how often a view was shown
let spoken = null; // the language of the words, as the address asked for it
const state = h("span", { class: "state", role: "status" });

// One stream for a view, of these studies or of all; the one before ends.
function live(studies, onChange) {
  stream?.close();
  const onState = (found) => {
    state.className = `state ${found}`;
    state.textContent = say(found === "live" ? "live" : `live.${found}`);
  };
  const onNews = (kind, event) => (kind === "gone" && studies.length ? show() : onChange(kind, event));
  stream = new Live(studies, { onChange: onNews, onAgain: show, onState });
  return stream;
}

function wantedTheme() {
  const asked = address.get("theme", "system");
  if (asked !== "system") return asked;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function frame() {
  const language = say("language.code");
  document.documentElement.lang = language === "zh" ? "zh-Hans" : "en";
  document.documentElement.dataset.theme = wantedTheme();
  document.getElementById("skip").textContent = say("skip");
  const place = address.get("study") || address.get("run") || (address.all("compare").length ? say("compare") : "");
  document.title = place ? `${place} – ${say("title")}` : say("title");
  const other = language === "zh" ? "en" : "zh";
  const themes = h("select", {
    name: "theme", "aria-label": say("theme.name"),
    onchange: (event) => { address.change({ theme: event.target.value === "system" ? null : event.target.value }); show(); },
  }, THEMES.map((name) => h("option", { value: name, selected: address.get("theme", "system") === name }, say(`theme.${name}`))));
  fill(document.getElementById("top"),
    h("a", { class: "brand", href: address.to({}) }, say("title")), h("span", { class: "place" }, place), state, themes,
    h("button", { type: "button", id: "language", "aria-label": say("language.name"), lang: other === "zh" ? "zh-Hans" : "en",
      onclick: () => { address.change({ lang: other }); show(); } }, say("language")));
}

// What is drawn before a font has come may keep its boxes, so a Chinese page waits for it a little.
async function speak() {
  const asked = address.get("lang");
  if (asked === spoken) return;
  setWords(await address.fetched("words"));
  spoken = asked;
  if (say("language.code") === "en") return;
  const font = document.fonts.load('16px "Enclosed Chinese"', "中").catch(() => null);
  await Promise.race([font, new Promise((resolve) => setTimeout(resolve, 3000))]);
}

// The view of the address, anew. One that was begun and is not here yet never comes: its questions are not answered.
async function show() {
  turn += 1;
  const mine = turn;
  for (const action of left) action();
  left = [];
  stream?.close();
  address.leave();
  main.setAttribute("aria-busy", "true");
  const whenLeft = (action) => left.push(action);
  const tools = { live, whenLeft, again: () => { if (mine === turn) show(); } };
  try {
    await speak();
    if (mine !== turn) return;
    frame();
    let isThere = true;
    if (address.get("study")) isThere = await study(main, address.get("study"), tools);
    else if (address.get("run")) isThere = await run(main, address.get("run"), tools);
    else if (address.all("compare").length) isThere = await compare(main, address.all("compare"), tools);
    else await overview(main, tools);
    if (!isThere) {
      stream?.close();
      state.textContent = "";
      state.className = "state";
      if (main.textContent !== say("not_found")) fill(main, h("p", { class: "warning", role: "alert" }, say("not_found")));
      const timer = setTimeout(show, AGAIN);
      whenLeft(() => clearTimeout(timer));
    }
  } catch (error) {
    if (mine !== turn) return;
    fill(main, h("p", { class: "warning", role: "alert" }, say("failed", { reason: error.message })));
  }
  main.setAttribute("aria-busy", "false");
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || link.target || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const href = link.getAttribute("href");
  if (link.id === "skip") { event.preventDefault(); main.focus(); }
  if (!href.startsWith("?")) return;
  event.preventDefault();
  const next = new URLSearchParams(href);
  if (!next.has("compare")) for (const id of address.all("choose")) next.append("choose", id);
  history.pushState(null, "", String(next) ? `?${next}` : location.pathname);
  show().then(() => { main.focus({ preventScroll: true }); scrollTo(0, 0); });
});
addEventListener("popstate", show);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (address.get("theme", "system") === "system") show(); });

await show();
