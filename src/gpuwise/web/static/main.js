// Puts the parts together: shows the view that the address names, whenever something has changed.
import { followLink, listenToUser } from "./actions.js";
import { show } from "./dom.js";
import { start } from "./live.js";
import { showLog, stopLog } from "./log.js";
import { want } from "./poll.js";
import { bannerText, head, login } from "./shell.js";
import { onChange, state } from "./state.js";
import { listenToTables, toFirstRows } from "./tables.js";
import { viewOf } from "./views.js";

const at = (id) => document.getElementById(id);

let view = viewOf("#/");
let asked = false;

const showBanner = (text) => {
  if (at("banner").textContent !== text) at("banner").textContent = text;
  at("banner").hidden = !text;
};

const draw = () => {
  asked = false;
  show(at("head"), head(state, view.address));
  showBanner(bannerText(state));
  const formIsNew = state.connection === "login" && !at("login");
  show(at("main"), state.connection === "login" ? login() : view.show(state));
  if (formIsNew) at("token").focus();
  at("main").classList.toggle("stale", state.connection === "lost");
  const box = at("log");
  if (box) showLog(view.id, box);
  else stopLog();
};

const redraw = () => {
  if (!asked) requestAnimationFrame(draw);
  asked = true;
};

const go = () => {
  const next = viewOf(location.hash);
  if (next === null) return;
  const moved = next.address !== view.address;
  view = next;
  for (const name of ["job", "why", "attempts", "estimates", "array"]) delete state[name];
  if (moved) toFirstRows();
  want(view.lists);
  document.title = view.title ? `${view.title} · gpuwise` : "gpuwise";
  redraw();
  if (moved) {
    scrollTo(0, 0);
    at("main").focus({ preventScroll: true });
  }
};

addEventListener("hashchange", go);
setInterval(redraw, 1000); // so that "5s ago" becomes "6s ago"
listenToUser();
listenToTables();
onChange(redraw);
followLink().then(start);
go();
