"use strict";
// Sends what the controls say to the program on this machine, and shows what it answers.

const form = document.getElementById("choices");
const results = document.getElementById("results");
const status = document.getElementById("status");
const PARTS = ["loss", "timeline", "ages", "spent"];
let current = null; // the update that is under way
let stated = null; // the choices that the statement on the page is about

// ---- sliders: the number is what counts, the slider moves it

function sliderOf(box) {
  const range = box.querySelector("input[type=range]");
  const entry = box.querySelector("input[type=text]");
  const low = Number(box.dataset.low), high = Number(box.dataset.high);
  const log = box.dataset.log === "1", whole = box.dataset.whole === "1";

  function fromRange() {
    let value = Number(range.value);
    if (log) value = low * Math.pow(high / low, value / 100);
    value = whole ? Math.round(log ? Number(value.toPrecision(2)) : value) : Number(value.toPrecision(log ? 2 : 6));
    entry.value = String(value);
    tell();
  }
  function toRange() {
    const value = Number(entry.value);
    if (!Number.isFinite(value)) return;
    const bounded = Math.min(Math.max(value, low), high);
    range.value = log ? String(100 * Math.log(bounded / low) / Math.log(high / low)) : String(bounded);
    tell();
  }
  function tell() { range.setAttribute("aria-valuetext", entry.value); }

  range.addEventListener("input", () => { fromRange(); update(); });
  entry.addEventListener("input", () => { toRange(); later(); });
  toRange();
}

for (const box of document.querySelectorAll(".slider")) sliderOf(box);

function enable(name, on) {
  for (const one of [document.getElementById(name), document.getElementById(name + "-slider")]) one.disabled = !on;
}

// ---- what is chosen

function query() {
  const given = new URLSearchParams();
  for (const [name, value] of new FormData(form)) given.set(name, value);
  return given;
}

let timer = 0;
function later() {
  window.clearTimeout(timer);
  timer = window.setTimeout(update, 250);
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", (event) => {
  const name = event.target.name;
  if (name === "source") { // another scenario has other values of its own
    window.location.assign("/?" + new URLSearchParams({ source: event.target.value }));
    return;
  }
  if (name === "schedule") enable("age", form.elements.schedule.value === "age");
  if (name === "forever") enable("rounds", !event.target.checked);
  if (event.target.type !== "text" && event.target.type !== "range") update();
});

// ---- results

function show(place, text) {
  const open = new Set([...place.querySelectorAll("details[open]")].map((one) => one.id));
  const focused = place.contains(document.activeElement) ? document.activeElement.closest("details") : null;
  place.innerHTML = text;
  for (const one of place.querySelectorAll("details")) if (open.has(one.id)) one.open = true;
  if (focused) {
    const again = document.getElementById(focused.id);
    if (again) again.querySelector("summary").focus();
  }
}

async function ask(path, given, signal) {
  const answer = await fetch(path + "?" + given, { signal });
  const text = await answer.text();
  if (!answer.ok) throw new Error("failed");
  return {
    text,
    open: Number(answer.headers.get("x-agewise-open") || 0),
    refused: answer.headers.has("x-agewise-refused"),
  };
}

async function update() {
  window.clearTimeout(timer);
  if (current) current.abort();
  const mine = new AbortController();
  current = mine;
  const given = query();
  const shown = new URLSearchParams(given);
  window.history.replaceState(null, "", "/?" + shown);
  given.set("narrow", results.clientWidth < 500 ? "1" : "0");
  const slow = window.setTimeout(() => {
    results.setAttribute("aria-busy", "true");
    status.textContent = "Computing …";
  }, 250);
  try {
    const view = await ask("/view", given, mine.signal);
    show(document.getElementById("view"), view.text);
    if (stated !== String(query())) clearStatement(); // the same choices have the same statement
    if (view.refused) {
      for (const key of [...PARTS, "after"]) document.getElementById(key).replaceChildren();
      finish("Refused: these values are not possible.");
      return;
    }
    for (const key of PARTS) {
      let open = 1;
      while (open > 0) {
        const part = await ask("/picture/" + key, given, mine.signal);
        show(document.getElementById(key), part.text);
        open = part.refused ? 0 : part.open;
        if (open > 0) status.textContent = "Computing … " + open + " targets of the first picture to go";
      }
    }
    const after = await ask("/after", given, mine.signal);
    show(document.getElementById("after"), after.text);
    if (stated !== null) tellStated();
    const gap = document.getElementById("gap");
    finish("Up to date. " + gap.previousElementSibling.textContent + ": " + gap.textContent + ".");
  } catch (error) {
    if (error.name === "AbortError") return;
    show(document.getElementById("view"), "");
    finish(
      error.message === "failed"
        ? "The explorer failed at this. The terminal that it was started in says why."
        : "The explorer does not answer. Is it still running? (agewise explore)"
    );
  } finally {
    window.clearTimeout(slow);
  }

  function finish(words) {
    window.clearTimeout(slow);
    results.setAttribute("aria-busy", "false");
    status.textContent = words;
  }
}

// ---- from a refusal to the choice that is to blame

results.addEventListener("click", (event) => {
  if (!event.target.matches("a.go")) return;
  event.preventDefault();
  const choice = document.querySelector(event.target.getAttribute("href"));
  if (!choice) return;
  for (let at = choice.parentElement; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  choice.focus();
});

// ---- the statement of a rehearsal

function clearStatement() {
  document.getElementById("statement").replaceChildren();
  stated = null;
}

function tellStated() {
  document.getElementById("carry-out").disabled = true;
  const link = document.getElementById("save-report");
  link.href = link.getAttribute("href") + "&statement=1";
}

results.addEventListener("click", async (event) => {
  if (event.target.id !== "carry-out") return;
  event.target.disabled = true;
  status.textContent = "Carrying the plan out …";
  const given = query();
  try {
    const answer = await ask("/statement", given, null);
    if (String(given) !== String(query())) return; // the choices have changed meanwhile
    show(document.getElementById("statement"), answer.text);
    stated = answer.refused ? null : String(given);
    if (stated !== null) tellStated();
    status.textContent = stated !== null ? "The statement is written." : "The plan was not carried out.";
    document.getElementById("statement").scrollIntoView();
  } catch (error) {
    status.textContent = "The explorer does not answer. Is it still running? (agewise explore)";
  } finally {
    event.target.disabled = stated !== null;
  }
});

// ---- readings

const upload = document.getElementById("upload");
const told = document.getElementById("upload-status");
const bar = document.getElementById("upload-progress");

function say(words, failed) {
  told.textContent = words;
  told.className = failed ? "warning refused" : "";
}

upload.addEventListener("submit", async (event) => {
  event.preventDefault();
  const file = upload.elements.file.files[0];
  if (!file) return say("Choose a file first.", true);
  if (file.size > Number(upload.dataset.most)) {
    return say(file.name + " has " + file.size.toLocaleString("en") + " bytes; allowed: " + upload.dataset.words + ".", true);
  }
  const given = new URLSearchParams({ name: file.name });
  for (const one of upload.elements) if (one.name && one.name !== "file") given.set(one.name, one.value);
  const button = upload.querySelector("button");
  button.disabled = true;
  bar.hidden = false;
  bar.removeAttribute("value");
  say("Reading " + file.name + " …", false);
  try {
    const sent = await fetch("/readings?" + given, { method: "POST", body: file, headers: { "x-agewise": "explore" } });
    const begun = await sent.json();
    if (begun.failure) return say(begun.failure, true);
    for (;;) {
      await new Promise((resolve) => window.setTimeout(resolve, 250));
      const job = await (await fetch("/readings/" + begun.key)).json();
      if (job.stage === "failed") return say(job.failure, true);
      if (job.stage === "done") {
        window.location.assign("/?" + new URLSearchParams({ source: job.source }));
        return;
      }
      say(job.stage + " …", false);
      if (job.total > 0) { bar.max = job.total; bar.value = job.done; } else { bar.removeAttribute("value"); }
    }
  } catch (error) {
    say("The file could not be sent: it was changed, or the explorer has ended.", true);
  } finally {
    button.disabled = false;
    bar.hidden = true;
  }
});

let narrow = results.clientWidth < 500;
window.addEventListener("resize", () => {
  if ((results.clientWidth < 500) !== narrow) { narrow = !narrow; later(); }
});

update();
